// Request bodies of all paths that take one: parsing, checks and chat templates must never crash,
// whatever the bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "api/requests.h"
#include "api/template_input.h"
#include "api/vector_requests.h"

namespace {

const lamina::ChatTemplate& Template() {
  static const auto parsed = lamina::ChatTemplate::Parse(
      "{% for m in messages %}{{ m.role|upper }}: {{ m['content']|trim }}{{ m|tojson }}{{ "
      "m.name[1:] if m.name is string }}{% endfor %}{{ "
      "kwargs }}{{ extra|default('x') }}{{ tools|tojson }}",
      {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  return *parsed.value();
}

void CheckError(const std::optional<lamina::ApiError>& error) {
  if (error && (error->http_status != 400 || error->message.empty())) std::abort();
  if (error && lamina::ErrorJson(*error).empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nlohmann::json body;
  const auto error = lamina::ParseBody({reinterpret_cast<const char*>(data), size}, body);
  CheckError(error);
  if (error) return 0;
  const lamina::RequestRules rules{1024, {}};
  std::vector<std::string> unknown;
  lamina::CompletionRequest completion;
  const auto completion_error = lamina::ParseCompletion(body, rules, completion, unknown);
  CheckError(completion_error);
  if (!completion_error && completion.options.constraint) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    (void)lamina::CompileRequested(*completion.options.constraint, text).ok();
  }
  lamina::ChatRequest chat;
  const auto chat_error = lamina::ParseChat(body, rules, chat, unknown);
  CheckError(chat_error);
  if (!chat_error) {
    CheckError(lamina::PrepareForTemplate({reinterpret_cast<const char*>(data), size}, chat.input));
    (void)Template().Render(chat.input).ok();
  }
  using Kind = lamina::VectorForm::Kind;
  for (const Kind kind :
       {Kind::kEmbeddings, Kind::kScores, Kind::kRanking, Kind::kOllama, Kind::kOllamaPlain}) {
    lamina::VectorRequest vectors;
    CheckError(lamina::ParseVectors(body, kind, {1024, 8}, vectors, unknown));
  }
  lamina::TokenizeRequest tokenize;
  CheckError(lamina::ParseTokenize(body, tokenize));
  lamina::DetokenizeRequest detokenize;
  CheckError(lamina::ParseDetokenize(body, rules, detokenize));
  return 0;
}
