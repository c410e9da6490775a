// What models write: whole and cut anywhere it comes to the same, arguments of calls that end well
// are JSON, and no bytes break the parser.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "text/answer_parser.h"

namespace {

struct Answer {
  std::string reasoning, text;
  std::vector<std::string> names, arguments;
  bool operator==(const Answer&) const = default;
};

void Add(const lamina::AnswerPieces& pieces, Answer& answer) {
  answer.reasoning += pieces.reasoning;
  answer.text += pieces.text;
  for (const lamina::AnswerPieces::Call& call : pieces.calls) {
    if (!call.name.empty()) {
      if (call.index != answer.names.size()) std::abort();
      answer.names.push_back(call.name);
      answer.arguments.emplace_back();
    }
    if (call.index >= answer.names.size()) std::abort();
    answer.arguments[call.index] += call.arguments;
  }
}

Answer Parse(const lamina::AnswerFormat& format, std::string_view text, size_t cut_bytes) {
  const std::unique_ptr<lamina::AnswerParser> parser = lamina::AnswerParser::Create(format);
  Answer answer;
  for (size_t at = 0; at < text.size(); at += cut_bytes) {
    lamina::AnswerPieces pieces;
    parser->Push(text.substr(at, cut_bytes), pieces);
    Add(pieces, answer);
  }
  lamina::AnswerPieces rest;
  parser->Finish(rest);
  Add(rest, answer);
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  lamina::AnswerFormat format;
  const auto& names = lamina::ToolFormatNames();
  const size_t kind = data[0] % (names.size() + 1);
  if (kind < names.size()) format.tools = lamina::ToolFormatNamed(names[kind]);
  format.reasoning = (data[1] & 1) != 0;
  format.begins_reasoning = (data[1] & 2) != 0;
  format.parallel = (data[1] & 4) == 0;
  format.tool_names = {"f", "weather"};
  const int forced = data[1] >> 6;
  if (forced == 1) format.forced = lamina::ForcedCall::kList;
  if (forced == 2) format.forced = lamina::ForcedCall::kNamed;
  format.forced_name = "f";
  const Answer whole = Parse(format, text, text.size() + 1);
  if (Parse(format, text, 1) != whole) std::abort();
  if (Parse(format, text, 2 + data[1] / 8) != whole) std::abort();
  // Without calls nothing but a marker of reasoning and line breaks around it is taken away.
  const bool is_text = !format.tools && !format.reasoning && !format.begins_reasoning &&
                       format.forced == lamina::ForcedCall::kNo;
  if (is_text && whole.text != text) std::abort();
  return 0;
}
