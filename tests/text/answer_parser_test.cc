#include "text/answer_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/support/paths.h"
#include "text/chat_template.h"

namespace lamina {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct ReadCall {
  std::string name, arguments;
  bool operator==(const ReadCall&) const = default;
};
void PrintTo(const ReadCall& call, std::ostream* out) { *out << call.name << call.arguments; }

struct ReadAnswer {
  std::string reasoning, text;
  std::vector<ReadCall> calls;
  bool over = false;
  bool operator==(const ReadAnswer&) const = default;
};
void PrintTo(const ReadAnswer& answer, std::ostream* out) {
  *out << "reasoning: " << answer.reasoning << "\ntext: " << answer.text;
  for (const ReadCall& call : answer.calls) *out << "\ncall: " << call.name << call.arguments;
}

// `cut` says how many bytes come next.
ReadAnswer ReadInPieces(const AnswerFormat& format, std::string_view text,
                        const std::function<size_t()>& cut) {
  const std::unique_ptr<AnswerParser> parser = AnswerParser::Create(format);
  ReadAnswer answer;
  const auto add = [&](const AnswerPieces& pieces) {
    answer.reasoning += pieces.reasoning;
    answer.text += pieces.text;
    for (const AnswerPieces::Call& call : pieces.calls) {
      if (!call.name.empty()) {
        EXPECT_EQ(call.index, answer.calls.size());
        answer.calls.push_back({call.name, ""});
      }
      answer.calls.at(call.index).arguments += call.arguments;
    }
  };
  while (!text.empty()) {
    const size_t size = std::min(text.size(), cut());
    AnswerPieces pieces;
    parser->Push(text.substr(0, size), pieces);
    add(pieces);
    text.remove_prefix(size);
  }
  answer.over = parser->over();
  AnswerPieces rest;
  parser->Finish(rest);
  add(rest);
  EXPECT_EQ(parser->called(), !answer.calls.empty());
  return answer;
}

// However it is cut, the answer is the same.
ReadAnswer Read(const AnswerFormat& format, std::string_view text) {
  const ReadAnswer whole = ReadInPieces(format, text, [&] { return text.size(); });
  EXPECT_EQ(ReadInPieces(format, text, [] { return size_t{1}; }), whole) << text;
  std::mt19937 random(5);
  EXPECT_EQ(ReadInPieces(format, text, [&] { return 1 + random() % 7; }), whole) << text;
  return whole;
}

AnswerFormat Calls(ToolFormat tools) {
  AnswerFormat format;
  format.tools = tools;
  format.tool_names = {"f", "g"};
  return format;
}

std::string Fnv(std::string_view text) {
  uint64_t state = 0xCBF29CE484222325;
  for (const char c : text) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  char hex[17];
  std::snprintf(hex, sizeof(hex), "%016llx", static_cast<unsigned long long>(state));
  return hex;
}

ChatInput InputOf(const ordered_json& golden_case, size_t num_messages) {
  ChatInput input;
  input.tools = golden_case["tools"];
  for (size_t i = 0; i < num_messages; ++i) {
    const ordered_json& message = golden_case["messages"][i];
    ChatMessage& out = input.messages.emplace_back();
    out.role = message["role"];
    if (!message["content"].is_null()) out.content = message["content"].get<std::string>();
    out.rest = message;
    out.rest.erase("role");
    out.rest.erase("content");
  }
  return input;
}

class ToolCallsGolden : public ::testing::TestWithParam<const char*> {};

// 200 conversations render as transformers renders them, and what the model would write of the last
// message is read back as that message.
TEST_P(ToolCallsGolden, ConversationsRenderAndAreReadBack) {
  std::ifstream file(SourcePath("/tests/text/tool_calls_golden.json"));
  const ordered_json golden = ordered_json::parse(file).at(GetParam());
  const std::string name = GetParam();
  const std::string source = golden["template"];
  const auto chat_template =
      ChatTemplate::Parse(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  ASSERT_TRUE(chat_template.ok()) << chat_template.status();
  AnswerFormat format;
  format.tools = ToolFormatOfTemplate(source);
  ASSERT_EQ(format.tools, ToolFormatNamed(name.substr(0, name.find(' '))));
  format.reasoning = TemplateHasReasoning(source);
  EXPECT_EQ(format.reasoning, name.ends_with("reasoning"));
  ASSERT_EQ(golden["cases"].size(), 200u);
  size_t num_calls = 0;
  for (const ordered_json& one : golden["cases"]) {
    const size_t num_messages = one["messages"].size();
    ChatInput input = InputOf(one, num_messages);
    input.add_generation_prompt = false;
    const auto whole = (*chat_template)->Render(input);
    ASSERT_TRUE(whole.ok()) << whole.status();
    if (one.contains("whole")) {
      EXPECT_EQ(*whole, one["whole"].get<std::string>());
    }
    ASSERT_EQ(Fnv(*whole), one["whole_hash"].get<std::string>()) << *whole;
    const auto prompt = (*chat_template)->Render(InputOf(one, num_messages - 1));
    ASSERT_TRUE(prompt.ok()) << prompt.status();
    ASSERT_EQ(Fnv(*prompt), one["prompt_hash"].get<std::string>()) << *prompt;

    std::string written = whole->substr(prompt->size());
    written.resize(written.size() - golden["end"].get<std::string>().size());
    format.tool_names.clear();
    for (const ordered_json& tool : one["tools"])
      format.tool_names.insert(tool["function"]["name"].get<std::string>());
    const ordered_json& message = one["messages"].back();
    const ReadAnswer answer = Read(format, written);
    EXPECT_EQ(answer.text, message["content"].is_null() ? "" : message["content"]) << written;
    EXPECT_EQ(answer.reasoning, message.value("reasoning_content", "")) << written;
    const ordered_json calls = message.value("tool_calls", ordered_json::array());
    ASSERT_EQ(answer.calls.size(), calls.size()) << written;
    for (size_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(answer.calls[i].name, calls[i]["function"]["name"]);
      EXPECT_EQ(json::parse(answer.calls[i].arguments), json(calls[i]["function"]["arguments"]));
    }
    num_calls += calls.size();
  }
  EXPECT_GT(num_calls, 100u);
}

INSTANTIATE_TEST_SUITE_P(AnswerParser, ToolCallsGolden,
                         ::testing::Values("hermes", "hermes with reasoning", "llama3_json",
                                           "mistral", "granite", "phi4_mini_json",
                                           "openai with reasoning"));

TEST(AnswerParser, OtherWaysToWriteCalls) {
  const std::vector<ReadCall> both = {{"f", R"({"a": 1})"}, {"g", "{}"}};
  EXPECT_EQ(Read(Calls(ToolFormat::kMistral),
                 R"([TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[CALL_ID]x[ARGS]{})")
                .calls,
            both);
  EXPECT_EQ(Read(Calls(ToolFormat::kMistral), R"([TOOL_CALLS]f{"a": 1}[TOOL_CALLS] g {})").calls,
            both);
  EXPECT_EQ(
      Read(Calls(ToolFormat::kLlama3Json),
           R"(<|python_tag|>{"parameters": {"a": 1}, "name": "f"};{"name": "g", "parameters": {}})")
          .calls,
      both);
  EXPECT_EQ(Read(Calls(ToolFormat::kGranite),
                 R"(<tool_call>[{"name": "f", "arguments": {"a": 1}}, {"name": "g"}])")
                .calls,
            both);
  EXPECT_EQ(
      Read(
          Calls(ToolFormat::kPhi4MiniJson),
          R"(<|tool_call|>[{"type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}},
              {"name": "g", "arguments": null}]<|/tool_call|>)")
          .calls,
      both);
  // Without a closing tag, and with line breaks in a string, which JSON does not allow.
  const ReadAnswer hermes =
      Read(Calls(ToolFormat::kHermes),
           "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x\ny\"}}<tool_call>\n{\"name\": "
           "\"g\", \"id\": {\"name\": \"f\"}}\n</tool_call>\n\nDone.");
  EXPECT_EQ(json::parse(hermes.calls.at(0).arguments), (json{{"a", "x\ny"}}));
  EXPECT_EQ(hermes.calls.at(1), (ReadCall{"g", "{}"}));
  EXPECT_EQ(hermes.text, "\n\nDone.");
}

TEST(AnswerParser, MessagesInChannels) {
  AnswerFormat format = Calls(ToolFormat::kOpenAi);
  format.reasoning = true;
  const ReadAnswer answer =
      Read(format,
           "<|channel|>analysis<|message|>One<|end|>\n<|start|>assistant<|channel|>analysis"
           "<|message|>two <|x|> <<|end|><|start|>assistant<|channel|>commentary<|message|>I "
           "look.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
           "<|constrain|>json<|message|>{\"a\": 1}<|call|><|start|>assistant "
           "to=functions.g<|channel|>commentary json<|message|>{}<|call|>"
           "<|channel|>final<|message|>Done<|return|>");
  EXPECT_EQ(answer.reasoning, "One\ntwo <|x|> <");
  EXPECT_EQ(answer.text, "I look.\nDone");
  EXPECT_EQ(answer.calls, (std::vector<ReadCall>{{"f", R"({"a": 1})"}, {"g", "{}"}}));
  // Its own tools are not this server's, and neither are others' names.
  for (const char* to : {"browser.search", "python", "functions.h", "functions."}) {
    const ReadAnswer other =
        Read(format, std::string("<|channel|>commentary to=") + to + " code<|message|>{}<|call|>");
    EXPECT_EQ(other.reasoning, "{}") << to;
    EXPECT_TRUE(other.calls.empty()) << to;
  }
  format.parallel = false;
  const ReadAnswer one = Read(format,
                              "<|channel|>commentary to=functions.f<|message|>{}<|call|>"
                              "<|start|>assistant<|channel|>final<|message|>Done");
  EXPECT_EQ(one.calls, (std::vector<ReadCall>{{"f", "{}"}}));
  EXPECT_EQ(one.text, "");
  EXPECT_TRUE(one.over);
  format.reasoning = false;
  EXPECT_EQ(Read(format, "<|channel|>analysis<|message|>Hm<|end|>").text, "Hm");
}

TEST(AnswerParser, WhatIsNoMessageInAChannelStaysText) {
  AnswerFormat format = Calls(ToolFormat::kOpenAi);
  format.reasoning = true;
  for (const std::string text : {"Hello", " Hello <|start> <|channel|", "<|other|>x",
                                 "to the point", "toto=", "<|chan", "assistant"}) {
    const ReadAnswer answer = Read(format, text);
    EXPECT_EQ(answer.text, text);
    EXPECT_EQ(answer.reasoning, "");
  }
  // The limit of tokens may cut a header.
  EXPECT_EQ(Read(format, "<|channel|>ana").text, "");
  EXPECT_EQ(Read(format, "<|channel|>final<|message|>x<|end|>\n<|sta").text, "x");
  // A header without an end is text when it is too long for one, and costs no more than that.
  const std::string endless = "<|channel|>" + std::string(5000, 'x');
  EXPECT_EQ(Read(format, endless).text, endless);
  std::string many;
  for (int i = 0; i < 300; ++i) many += "<|start|>";
  const ReadAnswer answer = Read(format, many + "<|channel|>final<|message|>x");
  EXPECT_TRUE(answer.text.ends_with("x"));
  EXPECT_LE(answer.text.size(), many.size() + 30);
}

TEST(AnswerParser, WhatIsNoCallStaysText) {
  const auto is_text = [](ToolFormat format, const std::string& text) {
    const ReadAnswer answer = Read(Calls(format), text);
    EXPECT_EQ(answer.text, text);
    EXPECT_TRUE(answer.calls.empty()) << text;
  };
  for (const std::string& name : ToolFormatNames()) {
    const ToolFormat format = *ToolFormatNamed(name);
    for (const char* text :
         {"", " ", "Hello.\n", "a < b", "<tool", "[TOOL", "functool", "<|", "x {\"name\": \"f\"}"})
      is_text(format, text);
  }
  is_text(ToolFormat::kHermes, "Write <tool_call> and </tool_call> around it.");
  is_text(ToolFormat::kHermes, "<tool_call>{\"name\": 3, \"arguments\": {}}");
  is_text(ToolFormat::kHermes, "<tool_call>{\"name\": \"\", \"arguments\": {}}");
  is_text(ToolFormat::kHermes, "<tool_call>{\"nam");
  is_text(ToolFormat::kHermes, "<tool_call>{\"name\": \"f\", arguments: {}}");
  is_text(ToolFormat::kLlama3Json, R"({"name": "Rosa", "parameters": {"age": 3}})");  // no tool
  is_text(ToolFormat::kLlama3Json, R"({"name": "f", "age": 3})");
  is_text(ToolFormat::kLlama3Json, R"({"answer": [1, {"name": "f", "parameters": {}}]})");
  is_text(ToolFormat::kMistral, "[TOOL_CALLS] f x[ARGS]{}");
  is_text(ToolFormat::kMistral, "[TOOL_CALLS] [1, 2]");
  is_text(ToolFormat::kGranite, "<|tool_call|>[]");
  is_text(ToolFormat::kPhi4MiniJson, "functools.reduce folds a list: functools [ 1 ]");
}

TEST(AnswerParser, ACallThatBreaksOffHasItsArgumentsSoFar) {
  const ReadAnswer cut =
      Read(Calls(ToolFormat::kHermes), R"(<tool_call>{"name": "f", "arguments": {"city": "K)");
  EXPECT_THAT(cut.calls, ElementsAre(ReadCall{"f", R"({"city": "K)"}));
  EXPECT_EQ(cut.text, "");
}

TEST(AnswerParser, ACallThatIsNoJsonIsHandedOverAsItIs) {
  const ReadAnswer broken = Read(Calls(ToolFormat::kHermes),
                                 R"(<tool_call>{"name": "f", "arguments": {"a": 1,}}</tool_call>
<tool_call>{"name": "g", "arguments": {}}</tool_call>)");
  EXPECT_THAT(broken.calls, ElementsAre(ReadCall{"f", R"({"a": 1,}})"}, ReadCall{"g", "{}"}));
  // A tag inside of a call: the call before it is broken, the one behind it is whole.
  const ReadAnswer nested = Read(
      Calls(ToolFormat::kHermes),
      R"(<tool_call>{"name": "f", "arguments": {"a": <tool_call>{"name": "g", "arguments": {}}</tool_call>)");
  EXPECT_THAT(nested.calls, ElementsAre(ReadCall{"f", R"({"a": )"}, ReadCall{"g", "{}"}));
  // In a string it is a part of the string.
  const ReadAnswer quoted = Read(
      Calls(ToolFormat::kHermes),
      R"(<tool_call>{"name": "f", "arguments": {"a": "</tool_call><tool_call>"}}</tool_call>)");
  EXPECT_THAT(quoted.calls, ElementsAre(ReadCall{"f", R"({"a": "</tool_call><tool_call>"})"}));
}

TEST(AnswerParser, DeepNestingIsNoJson) {
  const std::string deep(100'000, '[');
  const std::string call = R"({"name": "f", "arguments": {"a": )" + deep;
  EXPECT_EQ(Read(Calls(ToolFormat::kHermes), "<tool_call>" + call).calls.at(0).arguments,
            R"({"a": )" + deep);
  EXPECT_EQ(Read(Calls(ToolFormat::kHermes), "<tool_call>{\"x\": " + deep).text,
            "<tool_call>{\"x\": " + deep);
}

TEST(AnswerParser, OneCallIsEnoughIfTheyMayNotBeParallel) {
  AnswerFormat format = Calls(ToolFormat::kGranite);
  format.parallel = false;
  const ReadAnswer answer =
      Read(format, R"(<|tool_call|>[{"name": "f", "arguments": {}}, {"name": "g"}] more)");
  EXPECT_THAT(answer.calls, ElementsAre(ReadCall{"f", "{}"}));
  EXPECT_EQ(answer.text, "");
  EXPECT_TRUE(answer.over);
}

TEST(AnswerParser, ForcedCallsAreTheWholeAnswer) {
  AnswerFormat list;
  list.forced = ForcedCall::kList;
  EXPECT_THAT(
      Read(list, R"( [{"name": "x", "parameters": {"a": 1}}, {"name": "y", "parameters": {}}])")
          .calls,
      ElementsAre(ReadCall{"x", R"({"a": 1})"}, ReadCall{"y", "{}"}));
  EXPECT_EQ(Read(list, R"([{"name": "x")").text, R"([{"name": "x")");  // cut off
  AnswerFormat named;
  named.forced = ForcedCall::kNamed;
  named.forced_name = "f";
  const ReadAnswer answer = Read(named, R"( {"a": {"b": []}})");
  EXPECT_THAT(answer.calls, ElementsAre(ReadCall{"f", R"({"a": {"b": []}})"}));
  EXPECT_TRUE(answer.over);
  EXPECT_THAT(Read(named, R"({"a": )").calls, ElementsAre(ReadCall{"f", R"({"a": )"}));
}

TEST(AnswerParser, Reasoning) {
  AnswerFormat format;
  format.reasoning = true;
  const auto read = [&](std::string_view text) {
    const ReadAnswer answer = Read(format, text);
    return answer.reasoning + "|" + answer.text;
  };
  EXPECT_EQ(read("<think>\nhm\n\nso\n</think>\n\nYes."), "hm\n\nso|Yes.");
  EXPECT_EQ(read("\n<think>hm"), "hm|");
  EXPECT_EQ(read("<think>a </thin</think> b"), "a </thin| b");
  EXPECT_EQ(read("Say <think> and </think>"), "|Say <think> and </think>");
  EXPECT_EQ(read("<thin"), "|<thin");
  format.begins_reasoning = true;
  EXPECT_EQ(read("hm\n</think>\n\nYes."), "hm|Yes.");
  EXPECT_EQ(read("<think>\nhm</think>Yes."), "hm|Yes.");
  EXPECT_EQ(read("\n</think>\n\nYes."), "|Yes.");
  EXPECT_EQ(read("hm </th"), "hm </th|");
}

TEST(AnswerFormat, TemplatesShowTheirsOnlyIfThatIsCertain) {
  EXPECT_EQ(ToolFormatOfTemplate("{{ messages }}"), std::nullopt);
  EXPECT_EQ(ToolFormatOfTemplate("<tool_call>\n<function={{ name }}>\"arguments\""), std::nullopt);
  EXPECT_EQ(ToolFormatOfTemplate("<tool_call>{{ name }}<arg_key>'arguments'"), std::nullopt);
  EXPECT_EQ(ToolFormatNamed("pythonic"), std::nullopt);
  EXPECT_THAT(ToolFormatNames(), ElementsAre("hermes", "llama3_json", "mistral", "granite",
                                             "phi4_mini_json", "openai"));
}

}  // namespace
}  // namespace lamina
