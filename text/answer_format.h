// How a model writes what is more than text: its reasoning, and calls of tools.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lamina {

// Forms in which models write calls of tools, by vLLM's names for them. CALL is
// {"name": "f", "arguments": {...}}.
enum class ToolFormat {
  kHermes,        // <tool_call>CALL</tool_call> for each
  kLlama3Json,    // CALL; CALL as the whole answer, or behind <|python_tag|>
  kMistral,       // [TOOL_CALLS][CALL, CALL], or [TOOL_CALLS]f[ARGS]{...} for each
  kGranite,       // <|tool_call|>[CALL, CALL] or <tool_call>[CALL, CALL]
  kPhi4MiniJson,  // functools[CALL, CALL]
  kOpenAi,        // messages in channels (harmony_parser.h), reasoning and text among them
};

// "hermes", "llama3_json", "mistral", "granite", "phi4_mini_json", "openai"; nullopt: another word.
std::optional<ToolFormat> ToolFormatNamed(std::string_view name);
const std::vector<std::string>& ToolFormatNames();

// What a chat template shows of the model's calls; nullopt: nothing that is certain.
std::optional<ToolFormat> ToolFormatOfTemplate(std::string_view source);

// Whether a chat template knows reasoning: <think>...</think>, or a channel for it.
bool TemplateHasReasoning(std::string_view source);

// The texts that announce a call, and those inside of one: a tokenizer may have tokens for them,
// which must not be skipped as special ones are.
std::vector<std::string> ToolMarkers(ToolFormat format);

// Answers that are calls and nothing else, because they were constrained to be.
enum class ForcedCall {
  kNo,
  kList,   // [CALL, CALL], whatever the model's own form
  kNamed,  // the arguments of one tool
};

// What may stand around a call, as JSON has it.
constexpr bool IsWhiteSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// How one answer is to be read.
struct AnswerFormat {
  bool reasoning = false;         // the answer may begin with it
  bool begins_reasoning = false;  // the prompt ended with <think>
  std::optional<ToolFormat> tools;
  // Names of the tools. What is marked as a call may have another name, except with kOpenAi; what
  // is not, may not.
  std::set<std::string> tool_names = {};
  bool parallel = true;  // false: the answer is over when its first call is
  ForcedCall forced = ForcedCall::kNo;
  std::string forced_name = {};  // of kNamed
};

}  // namespace lamina
