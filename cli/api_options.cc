#include "cli/api_options.h"

#include <vector>

#include "cli/commands.h"

namespace lamina {
namespace {

std::vector<std::string> WithAuto(std::vector<std::string> words) {
  words.insert(words.begin(), {"auto", "none"});
  return words;
}

}  // namespace

void ApiOptions::AddTo(CLI::App& command) {
  AddOption(command, "--tool-call-parser", tool_call_parser,
            "How the model writes calls of tools; auto: as its chat template shows")
      ->check(CLI::IsMember(WithAuto(ToolFormatNames())));
  // vLLM has a word for each family of models; all of these write <think>...</think>.
  AddOption(command, "--reasoning-parser", reasoning_parser,
            "How the model reasons before it answers; think: <think>...</think>; auto: as its chat "
            "template shows")
      ->check(CLI::IsMember(WithAuto({"think", "qwen3", "deepseek_r1"})));
}

void ApiOptions::ApplyTo(ServedModel& model) const {
  const std::string source =
      model.chat_template != nullptr ? model.chat_template->source() : std::string();
  model.tool_format =
      tool_call_parser == "auto" ? ToolFormatOfTemplate(source) : ToolFormatNamed(tool_call_parser);
  model.reasoning =
      reasoning_parser == "auto" ? TemplateHasReasoning(source) : reasoning_parser != "none";
}

}  // namespace lamina
