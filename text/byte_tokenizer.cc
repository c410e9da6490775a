#include "text/byte_tokenizer.h"

#include "text/utf8.h"

namespace lamina {
namespace {

constexpr TokenId kFirstByte = 3;
constexpr int64_t kNumTokens = kFirstByte + 256;

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer(std::optional<TokenId> bos, std::optional<TokenId> eos) : bos_(bos), eos_(eos) {}

  Result<std::vector<TokenId>> Encode(std::string_view text,
                                      bool add_special_tokens) const override {
    std::vector<TokenId> ids;
    if (add_special_tokens && bos_) ids.push_back(*bos_);
    for (const char c : text) ids.push_back(kFirstByte + static_cast<unsigned char>(c));
    return ids;
  }

  int64_t MinTokens(std::string_view text) const override {
    return static_cast<int64_t>(text.size());
  }

  void Append(DecodeState& state, TokenId id, bool skip_special, std::string& text) const override {
    if (skip_special && (id == bos_ || id == eos_)) return;
    state.incomplete += TokenBytes(id);
    TakeCompleteUtf8(state.incomplete, text);
  }

  std::string TokenBytes(TokenId id) const override {
    return id >= kFirstByte && id < kNumTokens ? std::string(1, static_cast<char>(id - kFirstByte))
                                               : "?";
  }
  std::string IdToPiece(TokenId id) const override { return TokenBytes(id); }

  int64_t vocab_size() const override { return kNumTokens; }
  std::optional<TokenId> bos() const override { return bos_; }
  std::optional<TokenId> eos() const override { return eos_; }

 private:
  const std::optional<TokenId> bos_, eos_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> MakeByteTokenizer(int64_t vocab_size, std::optional<TokenId> bos,
                                                     std::optional<TokenId> eos) {
  if (vocab_size < kNumTokens) {
    return InvalidArgument("a vocabulary of " + std::to_string(vocab_size) +
                           " tokens has no room for the 256 bytes");
  }
  return std::unique_ptr<Tokenizer>(std::make_unique<ByteTokenizer>(bos, eos));
}

}  // namespace lamina
