#include "api/responses.h"

#include <chrono>
#include <cstdio>
#include <random>
#include <utility>

namespace lamina {
namespace {

using nlohmann::ordered_json;

std::string RandomHex() {
  static thread_local std::mt19937_64 random(std::random_device{}());
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(random()),
                static_cast<unsigned long long>(random()));
  return text;
}

ordered_json UsageJson(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

ordered_json CallsJson(const std::vector<ChoiceOutput::Call>& calls, bool indexed) {
  ordered_json list = ordered_json::array();
  for (const ChoiceOutput::Call& call : calls) {
    ordered_json& entry = list.emplace_back(ordered_json::object());
    if (indexed) entry["index"] = call.index;
    if (!call.name.empty()) {
      entry["id"] = call.id;
      entry["type"] = "function";
      entry["function"]["name"] = call.name;
    }
    entry["function"]["arguments"] = call.arguments;
  }
  return list;
}

// Of an answer as a whole.
ordered_json MessageJson(const ChoiceOutput& choice) {
  ordered_json message = {{"role", "assistant"}, {"content", choice.text}};
  if (choice.text.empty() && (!choice.calls.empty() || !choice.reasoning.empty()))
    message["content"] = nullptr;
  if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
  if (!choice.calls.empty()) message["tool_calls"] = CallsJson(choice.calls, /*indexed=*/false);
  return message;
}

// Of a piece of it.
ordered_json DeltaJson(const ChoiceOutput& choice, bool first) {
  ordered_json delta = ordered_json::object();
  if (first) delta["role"] = "assistant";
  const bool only_text = choice.calls.empty() && choice.reasoning.empty();
  if (!choice.text.empty() || (first && only_text)) delta["content"] = choice.text;
  if (!choice.reasoning.empty()) delta["reasoning_content"] = choice.reasoning;
  if (!choice.calls.empty()) delta["tool_calls"] = CallsJson(choice.calls, /*indexed=*/true);
  return delta;
}

// About a millisecond of writing: other connections get their turn in between.
constexpr size_t kPieceBytes = size_t{64} << 10;

// A choice's entry before the value of "logprobs"; `text` is what stands under `key`.
std::string EntryBegin(int index, const char* key, const ordered_json& text) {
  return "{\"index\":" + std::to_string(index) + ",\"" + key + "\":" + DumpJson(text) +
         ",\"logprobs\":";
}

std::string IdList(const std::vector<TokenId>& tokens) {
  std::string list = "[";
  for (const TokenId token : tokens) list += (list.size() > 1 ? "," : "") + std::to_string(token);
  return list + "]";
}

}  // namespace

// Mistral's templates refuse ids of another length.
std::string NewCallId(std::optional<ToolFormat> format) {
  return format == ToolFormat::kMistral ? RandomHex().substr(0, 9)
                                        : "call_" + RandomHex().substr(0, 24);
}

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kAbort: return "abort";
    case FinishReason::kError: return "error";
  }
  return "error";
}

std::string DumpJson(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

ResponseFormat::ResponseFormat(ResponseOptions options, const Tokenizer& tokenizer)
    : options_(std::move(options)),
      tokenizer_(tokenizer),
      id_((kind() == ApiKind::kChat ? "chatcmpl-" : "cmpl-") +
          (options_.request_id.empty() ? RandomHex() : options_.request_id)),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()) {}

// A chat has one prompt, whose tokens stand beside the choices, as do their log-probabilities; of
// completions each choice has those of its own.
std::string ResponseFormat::Begin(bool chunk, bool first) const {
  const char* object = kind() == ApiKind::kCompletion ? "text_completion"
                       : chunk                        ? "chat.completion.chunk"
                                                      : "chat.completion";
  std::string json =
      DumpJson({{"id", id_}, {"object", object}, {"created", created_}, {"model", options_.model}});
  json.back() = ',';
  if (first && options_.token_ids && kind() == ApiKind::kChat)
    json += "\"prompt_token_ids\":" + IdList(options_.prompt_token_ids.at(0)) + ",";
  return json + "\"choices\":[";
}

std::string ResponseFormat::EntryEnd(const ChoiceOutput& choice, bool first) const {
  ordered_json reason;
  if (choice.finish)
    reason = choice.called && *choice.finish == FinishReason::kStop
                 ? "tool_calls"
                 : FinishReasonName(*choice.finish);
  std::string json =
      ",\"finish_reason\":" + DumpJson(reason) + ",\"stop_reason\":" + DumpJson(choice.stop_reason);
  if (options_.token_ids) {
    json += ",\"token_ids\":" + IdList(choice.token_ids);
    const auto prompt = static_cast<size_t>(choice.index / options_.choices_per_prompt);
    if (first && kind() == ApiKind::kCompletion)
      json += ",\"prompt_token_ids\":" + IdList(options_.prompt_token_ids.at(prompt));
  }
  return json + "}";
}

LogprobWriter ResponseFormat::Logprobs(const ChoiceOutput& choice) const {
  LogprobWriter::Options options{.kind = options_.kind, .tokens_as_ids = options_.tokens_as_ids};
  if (options_.echo_logprobs >= 0) {
    options.echo = choice.prompt.get();
    options.num_echo_top = static_cast<size_t>(options_.echo_logprobs);
  }
  return {options, tokenizer_, choice.logprobs};
}

std::string ResponseFormat::Chunk(const ChoiceOutput& choice, bool first, const Usage* usage,
                                  bool null_usage) const {
  std::string json = Begin(/*chunk=*/true, first);
  if (kind() == ApiKind::kChat) {
    json += EntryBegin(choice.index, "delta", DeltaJson(choice, first));
  } else {
    json += EntryBegin(choice.index, "text", choice.text);
  }
  Logprobs(choice).Write(SIZE_MAX, json);
  json += EntryEnd(choice, first) + "]";
  if (usage != nullptr) {
    json += ",\"usage\":" + DumpJson(UsageJson(*usage));
  } else if (null_usage) {
    json += ",\"usage\":null";
  }
  return json + "}";
}

std::string ResponseFormat::UsageChunk(const Usage& usage) const {
  return Begin(/*chunk=*/true, /*first=*/false) + "],\"usage\":" + DumpJson(UsageJson(usage)) + "}";
}

AnswerWriter::AnswerWriter(const ResponseFormat& format, std::vector<ChoiceOutput> choices,
                           const Usage& usage)
    : format_(format), choices_(std::move(choices)), usage_(usage) {}

bool AnswerWriter::Write(std::string& json) {
  if (!std::exchange(begun_, true)) json += format_.Begin(/*chunk=*/false, /*first=*/true);
  for (; choice_ < choices_.size(); ++choice_) {
    if (json.size() >= kPieceBytes) return false;
    const ChoiceOutput& choice = choices_[choice_];
    const bool is_chat = format_.kind() == ApiKind::kChat;
    if (!logprobs_) {
      if (choice_ > 0) json += ',';
      json += is_chat ? EntryBegin(choice.index, "message", MessageJson(choice))
                      : EntryBegin(choice.index, "text", choice.text);
      logprobs_.emplace(format_.Logprobs(choice));
    }
    if (!wrote_logprobs_ && !logprobs_->Write(kPieceBytes, json)) return false;
    wrote_logprobs_ = true;
    if (!is_chat && !WritePrompt(choice, json)) return false;
    logprobs_.reset();
    wrote_logprobs_ = false;
    json += format_.EntryEnd(choice, /*first=*/true);
  }
  if (!std::exchange(ended_choices_, true)) json += ']';
  if (format_.kind() == ApiKind::kChat && !WritePrompt(choices_.front(), json)) return false;
  json += ",\"usage\":" + DumpJson(UsageJson(usage_)) + "}";
  return true;
}

bool AnswerWriter::WritePrompt(const ChoiceOutput& choice, std::string& json) {
  if (!format_.tells_prompt(choice)) return true;
  if (!prompt_) {
    json += ",\"prompt_logprobs\":";
    prompt_.emplace(format_.PromptLogprobs(choice));
  }
  if (!prompt_->Write(kPieceBytes, json)) return false;
  prompt_.reset();
  return true;
}

}  // namespace lamina
