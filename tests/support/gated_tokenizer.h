// A tokenizer that tests hold up.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "text/tokenizer.h"

namespace lamina::testing {

// Keeps whoever encodes a long text until it is told to let go, and counts them.
class GatedTokenizer final : public Tokenizer {
 public:
  static constexpr size_t kLongBytes = 300'000;
  explicit GatedTokenizer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  std::atomic<int> num_inside = 0, most_inside = 0;
  std::atomic<bool> open = false;

  Result<std::vector<TokenId>> Encode(std::string_view text,
                                      bool add_special_tokens) const override {
    if (text.size() < kLongBytes) return tokenizer_.Encode(text, add_special_tokens);
    auto& self = const_cast<GatedTokenizer&>(*this);
    const int inside = ++self.num_inside;
    if (inside > most_inside) self.most_inside = inside;
    const Deadline deadline = Deadline::After(std::chrono::seconds(30));
    while (!open && !deadline.Passed()) std::this_thread::yield();
    --self.num_inside;
    return std::vector<TokenId>{1};
  }
  int64_t MinTokens(std::string_view text) const override { return tokenizer_.MinTokens(text); }
  void Append(DecodeState& state, TokenId id, bool skip_special, std::string& text) const override {
    tokenizer_.Append(state, id, skip_special, text);
  }
  std::string TokenBytes(TokenId id) const override { return tokenizer_.TokenBytes(id); }
  std::string IdToPiece(TokenId id) const override { return tokenizer_.IdToPiece(id); }
  int64_t vocab_size() const override { return tokenizer_.vocab_size(); }
  std::optional<TokenId> bos() const override { return tokenizer_.bos(); }
  std::optional<TokenId> eos() const override { return tokenizer_.eos(); }

 private:
  const Tokenizer& tokenizer_;
};

}  // namespace lamina::testing
