#include "text/answer_parser.h"

#include "text/harmony_parser.h"
#include "text/marker_parser.h"

namespace lamina {

std::unique_ptr<AnswerParser> AnswerParser::Create(const AnswerFormat& format) {
  // A forced call is bare JSON, whatever the model's own format is.
  const bool has_channels = format.tools == ToolFormat::kOpenAi && format.forced == ForcedCall::kNo;
  if (has_channels) return std::make_unique<HarmonyParser>(format);
  return std::make_unique<MarkerParser>(format);
}

}  // namespace lamina
