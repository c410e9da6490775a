// How likely the tokens of a prompt are: kept compactly until an answer is sent, and written as
// vLLM's `prompt_logprobs`. In the form of OpenAI's older `echo` logprobs.h writes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/sampling_params.h"
#include "text/tokenizer.h"

namespace lamina {

// 20 bytes for each token and 8 for each of the most likely ones in its place.
class PromptScores {
 public:
  struct Token {
    TokenId token = 0;
    float logprob = 0;
    int32_t rank = 0;
    uint32_t text_offset = 0;  // characters of the prompt's text before it
    uint32_t top_end = 0;      // behind its last one in top_
  };

  // `offsets`: where the text of each token begins; empty if nobody asks.
  PromptScores(std::span<const TokenId> prompt, std::span<const int64_t> offsets);

  // Of the next tokens; those of the first one, which has none, are not given.
  void Add(std::span<const TokenScore> scored);
  bool complete() const { return num_known_ == tokens_.size(); }

  // All of the prompt. What is not complete says nothing yet.
  const std::vector<Token>& tokens() const { return tokens_; }
  // Whether a token has a log-probability: the first one has none.
  bool has(size_t i) const { return i > 0 && i < num_known_; }
  // Up to `count` of the most likely tokens in its place, the most likely first.
  std::span<const TokenLogprob> TopOf(size_t i, size_t count) const;
  size_t held_bytes() const {
    return tokens_.capacity() * sizeof(Token) + top_.capacity() * sizeof(TokenLogprob);
  }

 private:
  std::vector<Token> tokens_;
  std::vector<TokenLogprob> top_;  // of all tokens, one behind the other
  size_t num_known_ = 0;           // with the first
};

// Writes [null, {"17": {"logprob", "rank", "decoded_token"}, ...}, ...], for each token itself and
// then the `num_top` most likely ones, piece by piece.
class PromptScoresWriter {
 public:
  // Borrows.
  PromptScoresWriter(const Tokenizer& tokenizer, const PromptScores& scores, size_t num_top)
      : tokenizer_(tokenizer), scores_(scores), num_top_(num_top) {}

  // Appends until `json` has at least `enough_bytes`, or all is written; then it returns true and
  // is not called again.
  bool Write(size_t enough_bytes, std::string& json);

 private:
  void WriteToken(size_t i, std::string& json) const;
  void WriteEntry(const TokenLogprob& token, int64_t rank, std::string& json) const;

  const Tokenizer& tokenizer_;
  const PromptScores& scores_;
  const size_t num_top_;
  size_t next_ = 0;
};

}  // namespace lamina
