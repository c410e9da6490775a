// Request bodies of other protocols: translating them must never crash, whatever the bytes, and
// what comes of it is a chat request that is taken or refused.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "api/protocols/llama_request.h"
#include "api/protocols/messages_request.h"
#include "api/protocols/ollama_request.h"
#include "api/protocols/responses_request.h"
#include "api/template_input.h"

namespace {

const lamina::ServedModel& Model() {
  static const auto chat_template =
      lamina::ChatTemplate::Parse("{{ tools }}{{ enable_thinking }}{{ messages|tojson }}", {});
  static const lamina::ServedModel model = [] {
    lamina::ServedModel made;
    made.name = "m";
    made.chat_template = chat_template.value().get();
    made.tool_format = lamina::ToolFormat::kHermes;
    made.reasoning = true;
    made.infill = lamina::InfillFormat{};
    return made;
  }();
  return model;
}

void CheckError(const std::optional<lamina::ApiError>& error) {
  if (error && (error->http_status < 400 || error->message.empty())) std::abort();
  if (error && lamina::ErrorJson(*error).empty()) std::abort();
}

void CheckTranslated(const lamina::Translation& translation) {
  if (translation.answer) return;
  nlohmann::json body;
  const std::string text = lamina::DumpJson(translation.body);
  const auto error = lamina::ParseBody(text, body);
  CheckError(error);  // it may be nested too deep
  if (error) return;
  const lamina::RequestRules rules{1024, {}};
  std::vector<std::string> unknown;
  if (translation.kind == lamina::ApiKind::kCompletion) {
    lamina::CompletionRequest completion;
    const auto refused = lamina::ParseCompletion(body, rules, completion, unknown);
    CheckError(refused);
    if (!refused && !unknown.empty()) std::abort();
    return;
  }
  lamina::ChatRequest chat;
  const auto chat_error = lamina::ParseChat(body, rules, chat, unknown);
  CheckError(chat_error);
  if (chat_error) return;
  if (!unknown.empty()) std::abort();  // a translation makes no fields that nobody knows
  CheckError(lamina::PrepareForTemplate(text, chat.input));
  (void)Model().chat_template->Render(chat.input).ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  nlohmann::json fields;
  if (lamina::ParseBody(text, fields)) return 0;
  const auto ordered = lamina::ParseOrdered(text);
  if (!ordered) std::abort();
  CheckError(lamina::CheckOllamaShow(text, Model()));
  for (const lamina::Translate translate :
       {lamina::TranslateMessages, lamina::TranslateCountTokens, lamina::TranslateResponses,
        lamina::TranslateOllamaChat, lamina::TranslateOllamaGenerate,
        lamina::TranslateLlamaCompletion, lamina::TranslateLlamaInfill}) {
    nlohmann::ordered_json taken = *ordered;
    lamina::Translation translation;
    const auto error = translate({fields, taken}, Model(), translation);
    CheckError(error);
    if (!error) CheckTranslated(translation);
  }
  return 0;
}
