// The JSON of answers to /v1/completions and /v1/chat/completions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "frontend/engine.h"
#include "frontend/openai/logprobs.h"

namespace lamina {

// A choice as a whole, or what is new in it.
struct ChoiceOutput {
  int index = 0;
  std::string text;
  nlohmann::ordered_json logprobs;  // null: none
  std::optional<FinishReason> finish;
  nlohmann::ordered_json stop_reason;  // the stop string or stop token id, else null
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompts: KV was there from earlier requests
};

// "stop", "length", "abort", "error".
const char* FinishReasonName(FinishReason reason);

// Valid UTF-8 on one line.
std::string DumpJson(const nlohmann::ordered_json& json);

class ResponseFormat {
 public:
  // Draws a new id.
  ResponseFormat(ApiKind kind, std::string model);

  // The whole answer.
  std::string Full(std::span<const ChoiceOutput> choices, const Usage& usage) const;

  // One event of a stream. `first`: the choice's first one, which tells the role in a chat. Usage, if not null, is part of it; `null_usage`
  // writes "usage": null instead, as clients expect that asked for the usage chunk at the end.
  std::string Chunk(const ChoiceOutput& choice, bool first, const Usage* usage, bool null_usage) const;

  // The event without choices that tells the usage.
  std::string UsageChunk(const Usage& usage) const;

  ApiKind kind() const { return kind_; }

 private:
  nlohmann::ordered_json Head(bool chunk) const;

  ApiKind kind_;
  std::string model_;
  std::string id_;
  int64_t created_ = 0;  // Unix seconds
};

}  // namespace lamina
