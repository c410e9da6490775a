#include "bench/serve/prompts.h"

#include <algorithm>
#include <array>

#include "plan/workload/random_stream.h"

namespace lamina {
namespace {

// Streams of random numbers are numbered apart for what requests share and what they do not.
constexpr uint64_t kOwnTextStream = uint64_t{1} << 60, kBlockStream = uint64_t{1} << 61;
constexpr size_t kMaxWords = 4096;
constexpr size_t kMinWords = 16;  // of a vocabulary that has words at all

// For models whose tokenizer is not at hand: common words, one token each in nearly every
// vocabulary.
constexpr std::array<const char*, 32> kCommonWords = {
    " the",  " of", " and", " to",  " in",   " is",   " you",  " that", " it",   " he",   " was",
    " for",  " on", " are", " as",  " with", " his",  " they", " at",   " be",   " this", " have",
    " from", " or", " one", " had", " by",   " word", " but",  " not",  " what", " all"};

bool IsWord(const std::string& bytes, size_t spaces) {
  if (bytes.size() < spaces + 1 || bytes.size() > 13 || (spaces == 1 && bytes[0] != ' '))
    return false;
  return std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(spaces), bytes.end(),
                     [](char c) { return c >= 'a' && c <= 'z'; });
}

}  // namespace

PromptMaker::PromptMaker(const Tokenizer* tokenizer, uint64_t seed)
    : tokenizer_(tokenizer), seed_(seed) {
  // A vocabulary of bytes has no words with a space before them, only letters.
  for (const size_t spaces : {1, 0}) {
    if (tokenizer_ == nullptr || words_.size() >= kMinWords) break;
    for (TokenId id = 0; id < tokenizer_->vocab_size() && words_.size() < kMaxWords; ++id) {
      std::string bytes = tokenizer_->TokenBytes(id);
      if (!IsWord(bytes, spaces) || (spaces == 0 && bytes.size() > 1)) continue;
      words_.push_back(std::move(bytes));
      word_ids_.push_back(id);
    }
  }
  if (words_.empty()) words_.assign(kCommonWords.begin(), kCommonWords.end());
}

std::vector<uint64_t> PromptMaker::Draws(const TraceRequest& request, size_t index,
                                         int64_t block_tokens, int64_t count) const {
  std::vector<uint64_t> draws;
  draws.reserve(static_cast<size_t>(count));
  for (const int64_t block : request.prefix_blocks) {
    RandomStream random(seed_, kBlockStream + static_cast<uint64_t>(block));
    for (int64_t i = 0; i < block_tokens && std::ssize(draws) < count; ++i)
      draws.push_back(random.Bits());
  }
  RandomStream random(seed_, kOwnTextStream + index);
  while (std::ssize(draws) < count) draws.push_back(random.Bits());
  return draws;
}

std::string PromptMaker::Text(const TraceRequest& request, size_t index,
                              int64_t block_tokens) const {
  if (!request.prompt.empty()) return request.prompt;
  // Words side by side may be encoded as other tokens than each by itself, so that the number is
  // corrected by how far it is off.
  constexpr int kMaxCorrections = 8;
  int64_t num_words = request.input_tokens;
  for (int i = 0;; ++i) {
    std::string text;
    for (const uint64_t draw : Draws(request, index, block_tokens, num_words))
      text += words_[draw % words_.size()];
    if (text.starts_with(' ')) text.erase(0, 1);
    if (tokenizer_ == nullptr || i == kMaxCorrections) return text;
    const Result<std::vector<TokenId>> ids = tokenizer_->Encode(text, true);
    if (!ids.ok()) return text;  // the length is not corrected
    const int64_t corrected =
        std::max<int64_t>(1, num_words + request.input_tokens - std::ssize(*ids));
    if (corrected == num_words) return text;
    num_words = corrected;
  }
}

std::vector<TokenId> PromptMaker::Ids(const TraceRequest& request, size_t index,
                                      int64_t block_tokens, int64_t vocab_size) const {
  std::vector<TokenId> ids;
  if (!request.prompt.empty() && tokenizer_ != nullptr) {
    // A text that cannot be encoded gives no ids: the server refuses the request as empty, and it
    // counts as failed.
    const Result<std::vector<TokenId>> encoded = tokenizer_->Encode(request.prompt, true);
    return encoded.ok() ? *encoded : ids;
  }
  const std::vector<uint64_t> draws = Draws(request, index, block_tokens, request.input_tokens);
  // The middle half of a vocabulary has no special tokens in any known model.
  const auto first = static_cast<uint64_t>(vocab_size / 4),
             count = static_cast<uint64_t>(std::max<int64_t>(1, vocab_size / 2));
  for (const uint64_t draw : draws)
    ids.push_back(word_ids_.empty() ? static_cast<TokenId>(first + draw % count)
                                    : word_ids_[draw % word_ids_.size()]);
  return ids;
}

}  // namespace lamina
