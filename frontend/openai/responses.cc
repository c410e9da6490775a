#include "frontend/openai/responses.h"

#include <chrono>
#include <cstdio>
#include <random>

namespace lamina {
namespace {

using nlohmann::ordered_json;

std::string RandomHex() {
  static thread_local std::mt19937_64 random(std::random_device{}());
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(random()), static_cast<unsigned long long>(random()));
  return text;
}

ordered_json UsageJson(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

void AddEnd(ordered_json& json, const ChoiceOutput& choice) {
  json["logprobs"] = choice.logprobs;
  json["finish_reason"] = choice.finish ? ordered_json(FinishReasonName(*choice.finish)) : ordered_json();
  json["stop_reason"] = choice.stop_reason;
}

}  // namespace

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kAbort: return "abort";
    case FinishReason::kError: return "error";
  }
  return "error";
}

std::string DumpJson(const ordered_json& json) { return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace); }

ResponseFormat::ResponseFormat(ApiKind kind, std::string model)
    : kind_(kind),
      model_(std::move(model)),
      id_((kind == ApiKind::kChat ? "chatcmpl-" : "cmpl-") + RandomHex()),
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count()) {}

ordered_json ResponseFormat::Head(bool chunk) const {
  const char* object = kind_ == ApiKind::kCompletion ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}, {"choices", ordered_json::array()}};
}

std::string ResponseFormat::Full(std::span<const ChoiceOutput> choices, const Usage& usage) const {
  ordered_json json = Head(/*chunk=*/false);
  for (const ChoiceOutput& choice : choices) {
    ordered_json entry = {{"index", choice.index}};
    if (kind_ == ApiKind::kChat) {
      entry["message"] = {{"role", "assistant"}, {"content", choice.text}};
    } else {
      entry["text"] = choice.text;
    }
    AddEnd(entry, choice);
    json["choices"].push_back(std::move(entry));
  }
  json["usage"] = UsageJson(usage);
  return DumpJson(json);
}

std::string ResponseFormat::Chunk(const ChoiceOutput& choice, bool first, const Usage* usage, bool null_usage) const {
  ordered_json json = Head(/*chunk=*/true);
  ordered_json entry = {{"index", choice.index}};
  if (kind_ == ApiKind::kChat) {
    ordered_json delta = ordered_json::object();
    if (first) delta["role"] = "assistant";
    if (first || !choice.text.empty()) delta["content"] = choice.text;
    entry["delta"] = std::move(delta);
  } else {
    entry["text"] = choice.text;
  }
  AddEnd(entry, choice);
  json["choices"].push_back(std::move(entry));
  if (usage != nullptr) {
    json["usage"] = UsageJson(*usage);
  } else if (null_usage) {
    json["usage"] = nullptr;
  }
  return DumpJson(json);
}

std::string ResponseFormat::UsageChunk(const Usage& usage) const {
  ordered_json json = Head(/*chunk=*/true);
  json["usage"] = UsageJson(usage);
  return DumpJson(json);
}

}  // namespace lamina
