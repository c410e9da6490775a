#include "api/protocols/foreign_requests.h"

#include <utility>

#include "api/template_input.h"

namespace lamina {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

std::optional<ApiError> TranslateBody(Translate translate, const ServedModel& model,
                                      const std::string& body, Translation& out) {
  json fields;
  if (auto error = ParseBody(body, fields)) return error;
  std::optional<ordered_json> ordered = ParseOrdered(body);
  if (!ordered) return ApiError{400, "the request body is not valid JSON", ""};
  return translate({fields, *ordered}, model, out);
}

}  // namespace

ReadRequest ReadForeign(Translate translate, const RequestReader& reader, const ServedModel& model,
                        const std::string& body, int64_t max_model_len) {
  Translation translation;
  ReadRequest out;
  if (const auto error = TranslateBody(translate, model, body, translation)) {
    out.outcome = ErrorResponse(*error);
    return out;
  }
  if (translation.answer) {
    out.outcome = *std::move(translation.answer);
    return out;
  }
  const std::string translated = DumpJson(std::exchange(translation.body, nullptr));
  out = translation.kind == ApiKind::kChat ? reader.Chat(translated, max_model_len)
                                           : reader.Completion(translated, max_model_len);
  if (auto* spec = std::get_if<GenerationSpec>(&out.outcome)) {
    spec->form = std::move(translation.form);
    spec->default_max_tokens = INT64_MAX;  // whatever fits
  }
  return out;
}

ReadRequest CountForeignTokens(Translate translate, const RequestReader& reader,
                               const ServedModel& model, const std::string& body,
                               int64_t max_model_len) {
  ReadRequest out = ReadForeign(translate, reader, model, body, max_model_len);
  if (const auto* spec = std::get_if<GenerationSpec>(&out.outcome)) {
    const ordered_json answer = {{"input_tokens", spec->prompts.at(0).tokens.size()}};
    out.outcome = OutboundResponse{200, "application/json", DumpJson(answer), {}};
  }
  return out;
}

}  // namespace lamina
