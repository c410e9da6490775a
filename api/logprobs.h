// Log-probabilities of one choice: kept compactly while they wait, and written in the two forms of
// the API when they are sent.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/prompt_scores.h"
#include "manager/engine.h"
#include "text/tokenizer.h"

namespace lamina {

enum class ApiKind { kCompletion, kChat };

// As answers have them: a log-probability, -9999 for -infinity, which JSON has not; a text in
// quotation marks.
std::string JsonLogprob(float logprob);
std::string JsonString(const std::string& text);

// 16 bytes for each token and 8 for each of its most likely tokens. As JSON they are ten times as
// large.
class LogprobRecords {
 public:
  struct Token {
    TokenId token = 0;
    float logprob = 0;
    uint32_t text_offset = 0;  // characters of the choice's text before it
    uint32_t top_end = 0;      // behind its last one in top()
  };

  // REQUIRES: event.token.
  void Add(const TokenEvent& event);

  // Where the texts of the last tokens begin, as Detokenizer::TakeOffsets says, behind so many
  // characters of an echo. REQUIRES: so many were added.
  void Place(std::span<const int64_t> offsets, int64_t num_before);
  void Clear() { *this = {}; }

  const std::vector<Token>& tokens() const { return tokens_; }
  // Of all tokens, one behind the other.
  const std::vector<TokenLogprob>& top() const { return top_; }
  size_t held_bytes() const {
    return tokens_.capacity() * sizeof(Token) + top_.capacity() * sizeof(TokenLogprob);
  }

 private:
  std::vector<Token> tokens_;
  std::vector<TokenLogprob> top_;
};

// Writes records as JSON, piece by piece. Completions: {"tokens", "token_logprobs", "top_logprobs",
// "text_offset"}, where a token that is no whole text is written "bytes:\xe2\x98" and offsets count
// the characters of the choice's text; chat: {"content": [{"token", "logprob", "bytes",
// "top_logprobs"}]}. Nothing to write: null.
class LogprobWriter {
 public:
  struct Options {
    ApiKind kind = ApiKind::kCompletion;
    bool tokens_as_ids = false;  // each token is written "token_id:17"
    // Of completions: the prompt's tokens come before the records, with up to so many of the most
    // likely ones in the place of each. The first token has null for both. Null: there is no echo.
    const PromptScores* echo = nullptr;
    size_t num_echo_top = 0;
  };

  // Borrows.
  LogprobWriter(const Options& options, const Tokenizer& tokenizer, const LogprobRecords& records);

  // Appends until `json` has at least `enough_bytes`, or all is written; then it returns true and
  // is not called again.
  bool Write(size_t enough_bytes, std::string& json);

 private:
  struct Column {
    const char* name;
    void (LogprobWriter::*write)(size_t i, std::string& json) const;  // token i
  };
  static const std::vector<Column>& Columns(ApiKind kind);

  // What is written of one token.
  struct Entry {
    TokenId token = 0;
    std::optional<float> logprob;
    uint32_t text_offset = 0;
    std::span<const TokenLogprob> top;
  };
  Entry EntryOf(size_t i) const;
  size_t num_echoed() const {
    return options_.echo == nullptr ? 0 : options_.echo->tokens().size();
  }
  size_t num_tokens() const { return num_echoed() + records_.tokens().size(); }

  std::string Text(TokenId token) const;
  void WriteText(size_t i, std::string& json) const;
  void WriteLogprob(size_t i, std::string& json) const;
  void WriteTop(size_t i, std::string& json) const;
  void WriteOffset(size_t i, std::string& json) const;
  void WriteChatToken(size_t i, std::string& json) const;
  void WriteChatEntry(TokenId token, float logprob, std::string& json) const;

  const Options options_;
  const std::vector<Column>& columns_;
  const Tokenizer& tokenizer_;
  const LogprobRecords& records_;
  size_t column_ = 0;
  size_t next_ = 0;  // token
};

}  // namespace lamina
