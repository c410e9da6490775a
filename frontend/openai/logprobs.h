// Log-probabilities in the two forms of the API.
#pragma once

#include <nlohmann/json.hpp>

#include "frontend/engine.h"
#include "frontend/text/tokenizer.h"

namespace lamina {

enum class ApiKind { kCompletion, kChat };

// Collects tokens of one choice until they are sent. Completions: {"tokens", "token_logprobs", "top_logprobs", "text_offset"}, where a
// token that is no whole text is written "bytes:\xe2\x98"; chat: {"content": [{"token", "logprob", "bytes", "top_logprobs"}]}.
class LogprobCollector {
 public:
  LogprobCollector(ApiKind kind, const Tokenizer& tokenizer) : kind_(kind), tokenizer_(tokenizer) { Clear(); }  // borrows

  // REQUIRES: event.token.
  void Add(const TokenEvent& event);

  // What was collected since the last call; null if nothing.
  nlohmann::ordered_json Take();

 private:
  void Clear();
  void AddCompletion(const TokenEvent& event);
  void AddChat(const TokenEvent& event);

  ApiKind kind_;
  const Tokenizer& tokenizer_;
  nlohmann::ordered_json collected_;
  bool empty_ = true;
  int64_t text_offset_ = 0;  // in characters, over the whole choice
};

}  // namespace lamina
