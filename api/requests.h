// The requests of the OpenAI API, read from JSON and checked. No text is tokenised here.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/api_error.h"
#include "base/ids.h"
#include "model/model_config.h"
#include "text/chat_template.h"
#include "wire/control.pb.h"

namespace lamina {

// What all requests for text have in common.
struct GenerationOptions {
  std::string model;  // "" or absent: the one that is served
  int n = 1;          // answers
  // Sequences that are generated, or beams; at least n. The n most likely by token become the
  // answers.
  int best_of = 1;
  bool stream = false;
  bool include_usage = false;     // stream: one last chunk with the usage
  bool continuous_usage = false;  // stream: usage in every chunk
  std::optional<int64_t> max_tokens;
  int64_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  bool include_stop_in_output = false;
  bool skip_special_tokens = true;
  bool has_seed = false;  // else the caller draws one
  struct BeamSearch {
    double length_penalty = 1;
    bool early_stopping = false;
  };
  std::optional<BeamSearch> beam_search;  // instead of sampling
  control::SamplingParams sampling;
};

using Prompt = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  GenerationOptions options;
  std::vector<Prompt> prompts;  // at least one
  bool echo = false;            // the prompt's text stands in front of the answer
  bool add_special_tokens = true;
};

struct ChatRequest {
  GenerationOptions options;
  ChatInput input;
  // Whether the beginning-of-sequence token is put in front of the rendered conversation. Absent:
  // unless the template wrote it, so that there is exactly one.
  std::optional<bool> add_special_tokens;
};

struct TokenizeRequest {
  std::string model;
  std::variant<std::string, ChatInput> input;
  // Absent: true for text, as in ChatRequest for conversations.
  std::optional<bool> add_special_tokens;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<TokenId> tokens;
};

struct RequestRules {
  int64_t vocab_size = 0;
  ModelConfig::Generation defaults;
};

// The body as a JSON object, or an error in one sentence: no JSON, invalid UTF-8, nested more than
// 100 deep, not an object.
std::optional<ApiError> ParseBody(std::string_view body, nlohmann::json& out);

// Each fills `out` or says what is wrong. Fields that lamina does not know are named in
// `unknown_fields` (at most 16), and ignored. REQUIRES: `body` is an object nested at most 100
// deep.
std::optional<ApiError> ParseCompletion(const nlohmann::json& body, const RequestRules& rules,
                                        CompletionRequest& out,
                                        std::vector<std::string>& unknown_fields);
std::optional<ApiError> ParseChat(const nlohmann::json& body, const RequestRules& rules,
                                  ChatRequest& out, std::vector<std::string>& unknown_fields);
std::optional<ApiError> ParseTokenize(const nlohmann::json& body, TokenizeRequest& out);
std::optional<ApiError> ParseDetokenize(const nlohmann::json& body, const RequestRules& rules,
                                        DetokenizeRequest& out);

}  // namespace lamina
