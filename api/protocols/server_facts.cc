#include "api/protocols/server_facts.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "api/protocols/ollama_answer.h"
#include "base/version.h"
#include "transport/crypto.h"

namespace lamina {
namespace {

using nlohmann::ordered_json;

std::string SinceText(const ServerFacts& facts) {
  return TimeText(std::chrono::system_clock::time_point(std::chrono::seconds(facts.created)));
}

// 64 hexadecimal digits: clients show the first 12.
std::string DigestOf(const ServedModel& model) {
  const Result<std::string> hash = HmacSha256(model.root, model.name);
  std::string digest;
  for (const char c : hash.ok() ? *hash : std::string(kMacBytes, '\0')) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(c));
    digest += digits;
  }
  return digest;
}

int64_t WeightBytes(const EngineStatus& status) {
  int64_t bytes = 0;
  for (const NodeStatus& node : status.nodes) bytes += static_cast<int64_t>(node.weight_bytes);
  return bytes;
}

ordered_json DetailsOf(const ServedModel& model) {
  const std::string& family = model.config.model_type;
  const bool is_gguf = model.root.ends_with(".gguf");
  return {{"parent_model", ""},   {"format", is_gguf ? "gguf" : "safetensors"},
          {"family", family},     {"families", ordered_json::array({family})},
          {"parameter_size", ""}, {"quantization_level", ""}};
}

ordered_json OllamaEntry(const ServerFacts& facts) {
  return {{"name", facts.model.name},        {"model", facts.model.name},
          {"modified_at", SinceText(facts)}, {"size", WeightBytes(facts.status)},
          {"digest", DigestOf(facts.model)}, {"details", DetailsOf(facts.model)}};
}

ordered_json TokenText(const ServedModel& model, const std::optional<TokenId>& token) {
  return token ? model.tokenizer->IdToPiece(*token) : "";
}

// What a request gets that says nothing.
ordered_json DefaultSampling(const ServedModel& model) {
  const ModelConfig::Generation& defaults = model.config.generation;
  return {{"temperature", defaults.temperature.value_or(1.0f)},
          {"top_k", defaults.top_k.value_or(0)},
          {"top_p", defaults.top_p.value_or(1.0f)},
          {"min_p", defaults.min_p.value_or(0.0f)},
          {"repeat_penalty", defaults.repetition_penalty.value_or(1.0f)},
          {"presence_penalty", 0.0},
          {"frequency_penalty", 0.0},
          {"n_predict", -1}};
}

}  // namespace

ordered_json OllamaTags(const ServerFacts& facts) {
  return {{"models", ordered_json::array({OllamaEntry(facts)})}};
}

ordered_json OllamaProcesses(const ServerFacts& facts) {
  ordered_json entry = OllamaEntry(facts);
  entry.erase("modified_at");
  entry["expires_at"] = "9999-12-31T23:59:59Z";  // the model stays loaded
  entry["size_vram"] = entry["size"];
  entry["context_length"] = facts.max_model_len;
  return {{"models", ordered_json::array({std::move(entry)})}};
}

ordered_json OllamaShow(const ServerFacts& facts) {
  const ServedModel& model = facts.model;
  const ModelConfig& config = model.config;
  const std::string& type = config.model_type;
  ordered_json capabilities = ordered_json::array({"completion"});
  const bool has_template = model.chat_template != nullptr;
  if (has_template && model.tool_format && model.chat_template->Names("tools"))
    capabilities.push_back("tools");
  if (model.reasoning) capabilities.push_back("thinking");
  return {{"modelfile", ""},
          {"parameters", ""},
          {"template", has_template ? model.chat_template->source() : ""},
          {"details", DetailsOf(model)},
          {"model_info",
           {{"general.architecture", type},
            {"general.basename", model.name},
            {type + ".attention.head_count", config.num_heads},
            {type + ".attention.head_count_kv", config.num_kv_heads},
            {type + ".block_count", config.num_layers},
            {type + ".context_length", facts.max_model_len},
            {type + ".embedding_length", config.hidden_size},
            {type + ".feed_forward_length", config.intermediate_size},
            {type + ".vocab_size", config.vocab_size}}},
          {"capabilities", std::move(capabilities)},
          {"modified_at", SinceText(facts)}};
}

ordered_json LlamaProps(const ServerFacts& facts) {
  const ServedModel& model = facts.model;
  const std::optional<TokenId> eos = model.config.first_eos();
  return {{"default_generation_settings",
           {{"n_ctx", facts.max_model_len}, {"params", DefaultSampling(model)}}},
          {"total_slots", model.max_num_seqs},
          {"model_alias", model.name},
          {"model_path", model.root},
          {"modalities", {{"vision", false}, {"audio", false}}},
          {"chat_template", model.chat_template != nullptr ? model.chat_template->source() : ""},
          {"bos_token", TokenText(model, model.tokenizer->bos())},
          {"eos_token", TokenText(model, eos)},
          {"build_info", "lamina " + std::string(kVersion)}};
}

ordered_json LlamaSlots(const ServerFacts& facts) {
  ordered_json slots = ordered_json::array();
  for (int i = 0; i < facts.model.max_num_seqs; ++i) {
    slots.push_back({{"id", i},
                     {"n_ctx", facts.max_model_len},
                     {"speculative", false},
                     {"is_processing", i < facts.status.scheduler.num_running}});
  }
  return slots;
}

}  // namespace lamina
