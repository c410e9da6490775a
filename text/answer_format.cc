#include "text/answer_format.h"

#include <utility>

namespace lamina {
namespace {

struct FormatName {
  const char* name;
  ToolFormat format;
};
constexpr FormatName kFormatNames[] = {{"hermes", ToolFormat::kHermes},
                                       {"llama3_json", ToolFormat::kLlama3Json},
                                       {"mistral", ToolFormat::kMistral},
                                       {"granite", ToolFormat::kGranite},
                                       {"phi4_mini_json", ToolFormat::kPhi4MiniJson},
                                       {"openai", ToolFormat::kOpenAi}};

}  // namespace

std::optional<ToolFormat> ToolFormatNamed(std::string_view name) {
  for (const FormatName& known : kFormatNames) {
    if (name == known.name) return known.format;
  }
  return std::nullopt;
}

const std::vector<std::string>& ToolFormatNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const FormatName& known : kFormatNames) all.emplace_back(known.name);
    return all;
  }();
  return names;
}

// Each test names what only models of one kind write. <tool_call> alone is not enough: some put
// XML behind it.
std::optional<ToolFormat> ToolFormatOfTemplate(std::string_view source) {
  const auto has = [&](std::string_view text) {
    return source.find(text) != std::string_view::npos;
  };
  if (has("<|channel|>") && has("<|message|>")) return ToolFormat::kOpenAi;
  if (has("[TOOL_CALLS]")) return ToolFormat::kMistral;
  if (has("functools[")) return ToolFormat::kPhi4MiniJson;
  if (has("<|tool_call|>") && has("<|start_of_role|>")) return ToolFormat::kGranite;
  if (has("<tool_call>") && !has("<function=") && !has("<arg_key>") &&
      (has("\"arguments\"") || has("\\\"arguments\\\"") || has("'arguments'")))
    return ToolFormat::kHermes;
  if (has("<|start_header_id|>") && has("\"parameters\"")) return ToolFormat::kLlama3Json;
  return std::nullopt;
}

bool TemplateHasReasoning(std::string_view source) {
  return source.find("</think>") != std::string_view::npos ||
         ToolFormatOfTemplate(source) == ToolFormat::kOpenAi;
}

std::vector<std::string> ToolMarkers(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes: return {"<tool_call>", "</tool_call>"};
    case ToolFormat::kLlama3Json: return {"<|python_tag|>"};
    case ToolFormat::kMistral: return {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"};
    case ToolFormat::kGranite: return {"<|tool_call|>", "<tool_call>", "</tool_call>"};
    case ToolFormat::kPhi4MiniJson: return {"functools", "<|tool_call|>", "<|/tool_call|>"};
    case ToolFormat::kOpenAi:
      return {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>",
              "<|end|>",   "<|call|>",    "<|return|>"};
  }
  return {};
}

}  // namespace lamina
