// The requests of the OpenAI API, read from JSON and checked. No text is tokenised here.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "api/api_error.h"
#include "api/constraint_fields.h"
#include "base/ids.h"
#include "base/sampling_params.h"
#include "base/slo.h"
#include "model/model_config.h"
#include "text/answer_format.h"
#include "text/chat_template.h"

namespace lamina {

// What all requests for text have in common.
struct GenerationOptions {
  std::string model;  // empty means the one that is served
  // How many answers each prompt gets.
  int n = 1;
  // How many sequences are generated for each prompt, or how many beams are searched; at least n.
  // The best n become the answers: those with the highest log-probability per token, or those that
  // the beam search ranks first.
  int best_of = 1;
  bool stream = false;
  // Both concern streams only: whether one last chunk has the usage, and whether, if so, every
  // chunk has it.
  bool include_usage = false;
  bool continuous_usage = false;
  std::optional<int64_t> max_tokens;
  int64_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  bool include_stop_in_output = false;
  bool skip_special_tokens = true;
  // Whether the client gave a seed. If it did not, the caller draws one.
  bool has_seed = false;
  struct BeamSearch {
    double length_penalty = 1;
    bool early_stopping = false;
  };
  // Absent: answers are sampled.
  std::optional<BeamSearch> beam_search;
  SamplingParams sampling;
  // What has to be made of it with a tokenizer, or takes long: `sampling` is without both.
  std::optional<RequestedConstraint> constraint;
  std::vector<std::string> bad_words;
  int priority = 0;
  Slo slo;                 // without any: the server's
  std::string request_id;  // what the client calls the request; "": one is drawn
  // Log-probabilities of the prompt's tokens stand in front of the answer's, as many for each.
  bool echo_logprobs = false;
  // Of the prompt's tokens, with so many of the most likely ones for each; -1: not.
  int32_t prompt_logprobs = -1;
  // Nothing is generated that the client would see: it wants to know something of the prompt.
  bool only_prompt = false;
  // Answers have the tokens of prompt and text as numbers too.
  bool return_token_ids = false;
  // Log-probabilities name tokens by number: "token_id:17".
  bool return_tokens_as_token_ids = false;
  // Prompts of more tokens are cut to so many: from their beginning, or from their end if
  // `keep_first_tokens`. -1: to as many as leave room for 'max_tokens' in the model's context.
  std::optional<int64_t> truncate_prompt_tokens;
  bool keep_first_tokens = false;
};

using Prompt = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  GenerationOptions options;
  std::vector<Prompt> prompts;  // at least one
  bool echo = false;            // the prompt's text stands in front of the answer
  // What is to stand behind the answer; "": nothing is said of that.
  std::string suffix;
  bool add_special_tokens = true;
};

struct ChatRequest {
  GenerationOptions options;
  ChatInput input;
  std::set<std::string> tool_names;  // of input.tools
  bool parallel_tool_calls = true;
  ForcedCall forced = ForcedCall::kNo;  // what tool_choice demands, by ForceCall
  std::string forced_name;              // of kNamed
  bool include_reasoning = true;
  // Whether the beginning-of-sequence token is put in front of the rendered conversation. If it is
  // absent, the token is put there unless the template wrote it, so that there is exactly one.
  std::optional<bool> add_special_tokens;
};

struct TokenizeRequest {
  std::string model;
  std::variant<std::string, ChatInput> input;
  // If it is absent, it is true for text, and what ChatRequest says for conversations.
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
