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

// Which of the characters that `bytes` became has the one at `at`, or where it would be if it is
// their end: `count` of them, one for each byte if they spell no text. Some at the beginning may
// have been dropped.
size_t CharacterAt(std::string_view bytes, size_t at, size_t count) {
  if (at == bytes.size()) return count;
  if (count == bytes.size()) return at;
  const auto begins = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; };
  const auto after = static_cast<size_t>(
      std::count_if(bytes.begin() + static_cast<std::ptrdiff_t>(at) + 1, bytes.end(), begins));
  return count > after ? count - after - 1 : 0;
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options,
                         std::span<const TokenId> prompt)
    : tokenizer_(tokenizer), options_(std::move(options)) {
  state_.characters_at_once = true;
  std::string prompt_text;
  for (const TokenId token : prompt)
    tokenizer_.Append(state_, token, options_.skip_special_tokens, prompt_text);
  pending_ = state_.incomplete;
}

std::string Detokenizer::Push(TokenId token) {
  if (matched_stop_) return "";
  ++num_tokens_;
  const size_t held_before = held_.size();
  const bool was_at_start = state_.at_start;
  const bool kept = std::ranges::find(options_.kept_special, token) != options_.kept_special.end();
  tokenizer_.Append(state_, token, options_.skip_special_tokens && !kept, held_);
  if (options_.offsets) Place(token, was_at_start, held_.size() > held_before);
  num_characters_ +=
      static_cast<int64_t>(CountCodePoints(std::string_view(held_).substr(held_before)));
  if (num_tokens_ < options_.min_tokens) return std::exchange(held_, {});
  return TakeCertain();
}

// After `token` was appended: what it and those before it became is known if the text grew, or
// nothing waits.
void Detokenizer::Place(TokenId token, bool was_at_start, bool grew) {
  waiting_.push_back(pending_.size());
  if (!grew && !pending_.empty() && state_.incomplete.size() >= pending_.size()) {
    pending_.append(state_.incomplete, pending_.size());
    return;
  }
  std::string became;
  size_t length = 0;
  if (!pending_.empty()) {
    const std::string bytes = tokenizer_.TokenBytes(token);
    const bool begun = ClassifyUtf8(pending_, &length) == Utf8Prefix::kIncomplete;
    if (begun && !bytes.empty() &&
        ClassifyUtf8(pending_ + bytes[0], &length) != Utf8Prefix::kInvalid) {
      waiting_.assign(waiting_.size(), 0);  // all of them are of one character
    } else {
      DecodeState before{was_at_start, pending_};
      tokenizer_.Finish(before, became);
    }
  }
  Settle(became);
}

void Detokenizer::Settle(std::string_view became) {
  const size_t count = CountCodePoints(became);
  for (const size_t at : waiting_)
    offsets_.push_back(num_characters_ +
                       (at == 0 ? 0 : static_cast<int64_t>(CharacterAt(pending_, at, count))));
  waiting_.clear();
  pending_ = state_.incomplete;
}

void Detokenizer::Skip() {
  if (!options_.offsets || matched_stop_) return;
  waiting_.push_back(pending_.size());
  if (pending_.empty()) Settle("");
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
  const size_t held_before = held_.size();
  tokenizer_.Finish(state_, held_);
  Settle(std::string_view(held_).substr(held_before));
  std::string rest = TakeCertain();
  return rest + std::exchange(held_, {});
}

}  // namespace lamina
