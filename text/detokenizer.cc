#include "text/detokenizer.h"

#include <algorithm>
#include <utility>

#include "text/utf8.h"

namespace lamina {
namespace {

struct Match {
  size_t begin = std::string::npos;
  size_t end = std::string::npos;
  const std::string* stop = nullptr;
};

// The stop string that is complete first; of two that end together the longer one. So the result is
// the same whether text comes in one piece or in many.
Match FirstMatch(const std::string& text, const std::vector<std::string>& stops) {
  Match first;
  for (const std::string& stop : stops) {
    const size_t begin = text.find(stop);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (first.stop == nullptr || end < first.end || (end == first.end && begin < first.begin))
      first = {begin, end, &stop};
  }
  return first;
}

// Length of the longest end of `text` that is a proper beginning of a stop string.
size_t PossibleStopBytes(const std::string& text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t size = std::min(stop.size() - 1, text.size()); size > longest; --size) {
      if (text.compare(text.size() - size, size, stop, 0, size) == 0) longest = size;
    }
  }
  return longest;
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options,
                         std::span<const TokenId> prompt)
    : tokenizer_(tokenizer), options_(std::move(options)) {
  std::string prompt_text;
  for (const TokenId token : prompt)
    tokenizer_.Append(state_, token, options_.skip_special_tokens, prompt_text);
}

std::string Detokenizer::Push(TokenId token) {
  if (matched_stop_) return "";
  ++num_tokens_;
  const size_t held_before = held_.size();
  tokenizer_.Append(state_, token, options_.skip_special_tokens, held_);
  num_characters_ +=
      static_cast<int64_t>(CountCodePoints(std::string_view(held_).substr(held_before)));
  if (num_tokens_ < options_.min_tokens) return std::exchange(held_, {});
  return TakeCertain();
}

std::string Detokenizer::TakeCertain() {
  if (const Match match = FirstMatch(held_, options_.stop); match.stop != nullptr) {
    matched_stop_ = *match.stop;
    held_.resize(options_.include_stop_in_output ? match.end : match.begin);
    return std::exchange(held_, {});
  }
  const size_t keep = PossibleStopBytes(held_, options_.stop);
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, certain.size());
  return certain;
}

std::string Detokenizer::Finish() {
  if (matched_stop_) return "";
  tokenizer_.Finish(state_, held_);
  std::string rest = TakeCertain();
  return rest + std::exchange(held_, {});
}

}  // namespace lamina
