// Calls of tools and reasoning, from requests to answers.
#include "tests/support/http_fixture.h"

namespace lamina::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Shows everything that a template may look at.
constexpr char kTemplate[] =
    "{% for t in tools or [] %}{{ t|tojson }};{% endfor %}{% for m in messages %}{{ m.role }}"
    "={{ m.content if m.content is not none else '(none)' }}{% for c in m.tool_calls or [] %}"
    "[{{ c.function.name }}:{{ c.function.arguments|tojson }}]{% endfor %};{% endfor %}"
    "{% if enable_thinking %}<think>\n{% endif %}";

class HttpTools : public HttpTest {
 protected:
  // A model that writes `answer`, with the space in front that this tokenizer puts there.
  void Serve(const std::string& answer, const std::string& chat_template = kTemplate) {
    chat_template_ = std::move(*ChatTemplate::Parse(chat_template, {}));
    std::vector<TokenId> tokens = tokenizer().Encode(answer, false).value();
    tokens.push_back(kEos);
    StartServer(AlwaysAnswer(tokens));
  }

  static json Ask(json more = json::object()) {
    more["messages"] = {{{"role", "user"}, {"content", "x"}}};
    more["tools"] = json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
    return more;
  }

  std::string Prompt() const { return tokenizer().Decode(engine_->requests().back().prompt, true); }
};

constexpr char kTwoCalls[] =
    "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": "
    "\"K\u00f6ln\"}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";

TEST_F(HttpTools, CallsAreInTheMessage) {
  tool_format_ = ToolFormat::kHermes;
  Serve(kTwoCalls);
  const ClientResponse response = Post("/v1/chat/completions", Ask());
  ASSERT_EQ(response.status, 200) << response.body;
  const json choice = response.json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], " Let me see.");
  const json& calls = choice["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"]["name"], "f");
  EXPECT_EQ(calls[0]["function"]["arguments"], "{\"city\": \"K\u00f6ln\"}");
  EXPECT_EQ(calls[1]["function"]["arguments"], "{}");
  EXPECT_THAT(calls[0]["id"].get<std::string>(), ::testing::StartsWith("call_"));
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);
}

TEST_F(HttpTools, CallsAreStreamed) {
  tool_format_ = ToolFormat::kHermes;
  Serve(kTwoCalls);
  std::string text, finish;
  std::vector<json> calls;
  size_t num_pieces = 0;
  for (const json& event : Stream("/v1/chat/completions", Ask({{"stream", true}}))) {
    const json& choice = event["choices"][0];
    if (!choice["finish_reason"].is_null()) finish = choice["finish_reason"];
    text += choice["delta"].value("content", "");
    for (const json& call : choice["delta"].value("tool_calls", json::array())) {
      ++num_pieces;
      if (call.contains("id")) {
        EXPECT_EQ(call["index"], calls.size());
        calls.push_back(call);
      } else {
        json& arguments = calls.at(call["index"])["function"]["arguments"];
        arguments = arguments.get<std::string>() + call["function"]["arguments"].get<std::string>();
      }
    }
  }
  EXPECT_EQ(text, " Let me see.");
  EXPECT_EQ(finish, "tool_calls");
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0]["function"]["name"], "f");
  EXPECT_EQ(calls[0]["function"]["arguments"], "{\"city\": \"K\u00f6ln\"}");
  EXPECT_EQ(calls[1]["function"]["name"], "g");
  EXPECT_GT(num_pieces, 4u);  // arguments come while they are written
}

constexpr char kChannels[] =
    "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary<|message|>I "
    "look.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
    "<|constrain|>json<|message|>{\"a\": 1}<|call|>";
constexpr char kChannelTemplate[] =
    "{% for t in tools or [] %}{{ t.function.name }};{% endfor %}{% for m in messages %}{{ m.role "
    "}}={{ m.thinking or m.content }}{{ (m.tool_calls or [])|length }};{% endfor %}{% if "
    "add_generation_prompt %}<|start|>assistant{% endif %}";

TEST_F(HttpTools, ChannelsAreReasoningTextAndCalls) {
  tool_format_ = ToolFormat::kOpenAi;
  reasoning_ = true;
  Serve(kChannels, kChannelTemplate);
  const json choice = Post("/v1/chat/completions", Ask()).json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["reasoning_content"], "Hm");
  EXPECT_EQ(choice["message"]["content"], "I look.");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"a\": 1}");
  // Without tools the channels are the same, and what would be a call is for nobody.
  json without = Ask();
  without.erase("tools");
  const json message = Post("/v1/chat/completions", without).json()["choices"][0]["message"];
  EXPECT_EQ(message["content"], "I look.");
  EXPECT_EQ(message["reasoning_content"], "Hm\n{\"a\": 1}");
  EXPECT_FALSE(message.contains("tool_calls"));
  // What a client sends back as it got it is what the template calls thinking.
  json history = without;
  history["messages"].push_back(json::parse(
      R"({"role": "assistant", "content": null, "reasoning_content": "Hm", "tool_calls":
          [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]})"));
  ASSERT_EQ(Post("/v1/chat/completions", history).status, 200);
  EXPECT_EQ(Prompt(), "user=x0;assistant=Hm1;<|start|>assistant");
}

// A grammar leaves no room for a header.
TEST_F(HttpTools, AConstrainedAnswerInChannelsIsTheTextOfTheFinalOne) {
  tool_format_ = ToolFormat::kOpenAi;
  reasoning_ = true;
  Serve("{}", kChannelTemplate);
  json request = Ask({{"response_format", {{"type", "json_object"}}}});
  request.erase("tools");
  const json message = Post("/v1/chat/completions", request).json()["choices"][0]["message"];
  EXPECT_EQ(message["content"], " {}");
  EXPECT_FALSE(message.contains("reasoning_content"));
  EXPECT_EQ(Prompt(), "user=x0;<|start|>assistant<|channel|>final<|message|>");
}

TEST_F(HttpTools, WithoutToolsOrWithNoneWhatTheModelWritesIsText) {
  tool_format_ = ToolFormat::kHermes;
  Serve(kTwoCalls);
  json none = Ask({{"tool_choice", "none"}});
  json without = Ask();
  without.erase("tools");
  for (const json& request : {none, without}) {
    const json message = Post("/v1/chat/completions", request).json()["choices"][0]["message"];
    EXPECT_EQ(message["content"], " " + std::string(kTwoCalls));
    EXPECT_FALSE(message.contains("tool_calls"));
    EXPECT_EQ(Prompt(), "user=x;");  // tools that must not be called are not shown
  }
}

TEST_F(HttpTools, WithoutParallelCallsTheAnswerEndsWithTheFirst) {
  tool_format_ = ToolFormat::kHermes;
  Serve(kTwoCalls);
  const json choice =
      Post("/v1/chat/completions", Ask({{"parallel_tool_calls", false}})).json()["choices"][0];
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(engine_->WaitUntilIdle(Soon()));
}

TEST_F(HttpTools, ACallThatTheLimitCutsEndsForItsLength) {
  tool_format_ = ToolFormat::kHermes;
  Serve("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"bcdefghijklmnopqrstuvwxyz\"}}");
  const json choice = Post("/v1/chat/completions", Ask({{"max_tokens", 40}})).json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_THAT(choice["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>(),
              ::testing::StartsWith("{\"a\": \"b"));
}

TEST_F(HttpTools, IdsHaveTheFormThatMistralsTemplatesWant) {
  tool_format_ = ToolFormat::kMistral;
  Serve(R"([TOOL_CALLS][{"name": "f", "arguments": {}}])");
  const json call =
      Post("/v1/chat/completions", Ask()).json()["choices"][0]["message"]["tool_calls"][0];
  EXPECT_EQ(call["id"].get<std::string>().size(), 9u);
}

TEST_F(HttpTools, ToolsAndCallsOfTheHistoryAreRenderedInTheOrderOfTheirKeys) {
  tool_format_ = ToolFormat::kHermes;
  Serve("ok");
  const std::string body =
      R"({"tools": [{"type": "function", "function": {"name": "f", "b": 1, "a": {"z": 1, "y": 2, "z": 3}}}],
      "messages": [{"role": "user", "content": "x"},
      {"role": "assistant", "content": null, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"q\": 1, \"p\": {\"b\": 1.0, \"a\": \"é\"}}"}},
        {"id": "2", "type": "function", "function": {"name": "g", "arguments": ""}}]},
      {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "21"}]}]})";
  const ClientResponse response = Request("POST", "/v1/chat/completions", body);
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(Prompt(),
            "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"b\": 1, \"a\": {\"z\": 3, "
            "\"y\": 2}}};user=x;assistant=(none)[f:{\"q\": 1, \"p\": {\"b\": 1.0, \"a\": "
            "\"é\"}}][g:{}];tool=21;");
}

TEST_F(HttpTools, TemplatesThatCannotWorkWithoutContentGetAnEmptyOne) {
  tool_format_ = ToolFormat::kHermes;
  Serve("ok", "{% for m in messages %}{{ m.content + '.' }}{{ m.tool_calls|length }}{% endfor %}");
  json request = Ask();
  request.erase("tools");
  request["messages"].push_back(json::parse(
      R"({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]})"));
  ASSERT_EQ(Post("/v1/chat/completions", request).status, 200);
  EXPECT_EQ(Prompt(), "x.0.1");
}

TEST_F(HttpTools, WhatWouldBeLostIsRefused) {
  const auto refusal = [&](const json& request, const char* param) {
    const ClientResponse response = Post("/v1/chat/completions", request);
    EXPECT_EQ(response.status, 400) << response.body;
    EXPECT_EQ(response.json()["error"]["param"], param);
    return response.json()["error"]["message"].get<std::string>();
  };
  Serve("ok");
  EXPECT_THAT(refusal(Ask(), "tools"), HasSubstr("--tool-call-parser"));
  json history = Ask();
  history.erase("tools");
  history["messages"].push_back({{"role", "assistant"}, {"tool_calls", json::array({1})}});
  EXPECT_THAT(refusal(history, "messages"), HasSubstr("messages[1].tool_calls[0] must have"));
  history["messages"][1]["tool_calls"] =
      json::parse(R"([{"function": {"name": "f", "arguments": "[1]"}}])");
  EXPECT_THAT(refusal(history, "messages"), HasSubstr("arguments must be a JSON object"));
  server_.reset();
  tool_format_ = ToolFormat::kHermes;
  Serve("ok", "{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_THAT(refusal(Ask(), "tools"), HasSubstr("chat template of this model knows no tools"));
  EXPECT_THAT(refusal(history, "messages"), HasSubstr("knows no 'tool_calls'"));
}

// The model's own form does not matter then.
TEST_F(HttpTools, ACallIsDemanded) {
  Serve(R"([{"name": "f", "parameters": {"a": 1}}])");
  json request = Ask({{"tool_choice", "required"}});
  request["tools"][0]["function"]["parameters"] =
      json::parse(R"({"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}},
                      "required": ["a"], "$defs": {"x": {"type": "integer"}}})");
  ClientResponse response = Post("/v1/chat/completions", request);
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.json()["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"],
            R"({"a": 1})");
  const std::string required = engine_->requests().back().sampling.grammar;
  EXPECT_FALSE(required.empty());
  request["tool_choice"] = {{"type", "function"}, {"function", {{"name", "f"}}}};
  ASSERT_EQ(Post("/v1/chat/completions", request).status, 200);
  EXPECT_FALSE(engine_->requests().back().sampling.grammar.empty());
  EXPECT_NE(engine_->requests().back().sampling.grammar, required);
  request["response_format"] = {{"type", "json_object"}};
  response = Post("/v1/chat/completions", request);
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.json()["error"]["param"], "tool_choice");
}

TEST_F(HttpTools, ANamedToolHasTheWholeAnswerAsItsArguments) {
  Serve(R"({"a": 1})");
  json request = Ask({{"tool_choice", {{"type", "function"}, {"function", {{"name", "f"}}}}}});
  const json choice = Post("/v1/chat/completions", request).json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], R"({"a": 1})");
  EXPECT_TRUE(choice["message"]["content"].is_null());
}

TEST_F(HttpTools, ReasoningStandsApart) {
  reasoning_ = true;
  Serve("<think>\nhm\n</think>\n\nYes.");
  json request = Ask();
  request.erase("tools");
  json message = Post("/v1/chat/completions", request).json()["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "hm");
  EXPECT_EQ(message["content"], "Yes.");
  std::string reasoning, text;
  request["stream"] = true;
  for (const json& event : Stream("/v1/chat/completions", request)) {
    const json& delta = event["choices"][0]["delta"];
    reasoning += delta.value("reasoning_content", "");
    text += delta.value("content", "");
  }
  EXPECT_EQ(reasoning, "hm");
  EXPECT_EQ(text, "Yes.");
  request["stream"] = false;
  request["include_reasoning"] = false;
  message = Post("/v1/chat/completions", request).json()["choices"][0]["message"];
  EXPECT_FALSE(message.contains("reasoning_content"));
  EXPECT_EQ(message["content"], "Yes.");
}

TEST_F(HttpTools, APromptThatEndsWithThinkBeginsTheReasoning) {
  reasoning_ = true;
  Serve("hm\n</think>\n\nYes.");
  json request = Ask({{"chat_template_kwargs", {{"enable_thinking", true}}}});
  request.erase("tools");
  const json message = Post("/v1/chat/completions", request).json()["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], " hm");
  EXPECT_EQ(message["content"], "Yes.");
}

}  // namespace
}  // namespace lamina::testing
