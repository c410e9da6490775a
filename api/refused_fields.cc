#include "api/refused_fields.h"

#include <initializer_list>
#include <utility>

namespace lamina {
namespace {

using nlohmann::json;

// Refuses any value but those that mean what is done anyway.
void RefuseUnless(FieldReader& reader, const char* name, std::initializer_list<json> harmless,
                  const std::string& why) {
  const json* value = reader.Find(name);
  if (value == nullptr) return;
  for (const json& one : harmless) {
    if (*value == one) return;
  }
  reader.Fail(name, std::string("'") + name + "' is not supported except " +
                        harmless.begin()->dump() + ": " + why);
}

}  // namespace

void RefuseForeignFields(FieldReader& reader) {
  const std::pair<const char*, const char*> refused[] = {
      {"logprob_token_ids", "log-probabilities are given for the most likely tokens"},
      {"repetition_detection", "answers end at stop strings, stop tokens or 'max_tokens'"},
      {"watermarking", "answers are not marked"},
      {"return_token_offsets", "with 'logprobs' completions have 'text_offset'"},
      {"routed_experts_prompt_start", "experts are not told"},
      {"kv_transfer_params", "KV cache is not handed to other servers"},
      {"ec_transfer_params", "there is no cache of encoders"},
      {"vllm_xargs", "there are no extensions that read it"},
  };
  for (const auto& [name, instead] : refused) reader.Refuse(name, instead);
  RefuseUnless(reader, "spaces_between_special_tokens", {true}, "the tokenizer's own text is sent");
  RefuseUnless(reader, "thinking_token_budget", {-1}, "the model ends its reasoning itself");
  RefuseUnless(reader, "stream_interval", {1}, "streams have a chunk for each token");
  // They say how much is logged, billed or kept near, and nothing of the answer.
  for (const char* name : {"session_id", "return_mm_kwargs"}) reader.Ignore(name);
}

void RefuseForeignChatFields(FieldReader& reader) {
  const std::pair<const char*, const char*> refused[] = {
      {"audio", "answers are text"},
      {"moderation", "answers are not moderated"},
      {"prediction", "send the request without it"},
      {"media_io_kwargs", "messages are text"},
      {"mm_processor_kwargs", "messages are text"},
      {"suffix", "use /v1/completions"},
      {"return_prompt_text", "/tokenize shows what becomes of a conversation"},
  };
  for (const auto& [name, instead] : refused) reader.Refuse(name, instead);
  // Empty ones are a search with the defaults.
  if (reader.Find("web_search_options") != nullptr)
    reader.Fail("web_search_options",
                "'web_search_options' is not supported; nothing is searched for");
  RefuseUnless(reader, "modalities", {json::array({"text"}), json::array()}, "answers are text");
  RefuseUnless(reader, "verbosity", {"medium"}, "ask for short or long answers in the messages");
  for (const char* name :
       {"prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier"})
    reader.Ignore(name);
}

}  // namespace lamina
