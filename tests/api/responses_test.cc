// OpenAI's Responses API: requests that become chats, and chats that become responses.
#include "tests/support/protocol_fixture.h"

namespace lamina::testing {
namespace responses_test {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kPath[] = "/v1/responses";
constexpr char kTwoCalls[] =
    "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": \"Köln\"}}\n"
    "</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";

class Responses : public ProtocolTest {
 protected:
  static json Ask(const json& more = json::object()) {
    json body = {{"model", "tiny"}, {"input", "x"}};
    body.update(more);
    return body;
  }
  static json Tools() {
    return json::parse(R"([{"type": "function", "name": "f", "description": "finds", "strict": true,
      "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}])");
  }
};

TEST_F(Responses, HaveAMessageOfText) {
  Serve("Hello there.");
  const ClientResponse answer =
      Request("POST", kPath, Ask({{"instructions", "be kind"}, {"metadata", {{"a", "b"}}}}).dump(),
              "X-Request-Id: seven\r\n");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json response = answer.json();
  EXPECT_EQ(response["id"], "resp_seven");
  EXPECT_EQ(response["object"], "response");
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["model"], "tiny");
  EXPECT_EQ(response["instructions"], "be kind");
  EXPECT_EQ(response["metadata"]["a"], "b");
  EXPECT_EQ(response["store"], false);
  EXPECT_EQ(response["tool_choice"], "auto");
  ASSERT_EQ(response["output"].size(), 1u);
  const json& message = response["output"][0];
  EXPECT_EQ(message["type"], "message");
  EXPECT_EQ(message["status"], "completed");
  EXPECT_EQ(message["content"][0]["type"], "output_text");
  EXPECT_EQ(message["content"][0]["text"], " Hello there.");
  EXPECT_EQ(response["usage"]["input_tokens"], engine_->requests().back().prompt.size());
  EXPECT_EQ(Prompt(), "system=be kind;user=x;");
}

TEST_F(Responses, AreIncompleteAtTheirLimit) {
  Serve("One two three four five six seven eight nine ten.");
  const json response = Post(kPath, Ask({{"max_output_tokens", 4}})).json();
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(response["output"][0]["status"], "incomplete");
  EXPECT_EQ(response["usage"]["output_tokens"], 4);
  const auto events = NamedEvents(Post(kPath, Ask({{"max_output_tokens", 4}, {"stream", true}})));
  EXPECT_EQ(events.back().name, "response.incomplete");
}

TEST_F(Responses, AreStreamedAsEventsThatAreNumbered) {
  Serve("Hello there.");
  const std::vector<NamedEvent> events = NamedEvents(Post(kPath, Ask({{"stream", true}})));
  EXPECT_THAT(NamesOf(events),
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.output_text.delta",
                          "response.output_text.done", "response.content_part.done",
                          "response.output_item.done", "response.completed"));
  std::string text;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].data["sequence_number"], i);
    if (events[i].name == "response.output_text.delta") text += events[i].data["delta"];
    if (events[i].name == "response.output_text.done") {
      EXPECT_EQ(events[i].data["text"], text);
    }
  }
  EXPECT_EQ(text, " Hello there.");
  const json& response = events.back().data["response"];
  EXPECT_EQ(response["output"][0]["content"][0]["text"], text);
  EXPECT_GT(response["usage"]["output_tokens"], 0);
  EXPECT_TRUE(events[0].data["response"]["usage"].is_null());
}

TEST_F(Responses, CallsAreItems) {
  tool_format_ = ToolFormat::kHermes;
  Serve(kTwoCalls);
  const json response = Post(kPath, Ask({{"tools", Tools()}})).json();
  ASSERT_EQ(response["output"].size(), 3u) << response;
  EXPECT_EQ(response["output"][0]["content"][0]["text"], " Let me see.");
  EXPECT_EQ(response["output"][1]["type"], "function_call");
  EXPECT_EQ(response["output"][1]["name"], "f");
  EXPECT_EQ(response["output"][1]["arguments"], "{\"city\": \"Köln\"}");
  EXPECT_NE(response["output"][1]["call_id"], response["output"][2]["call_id"]);
  EXPECT_EQ(response["tools"], Tools());
  EXPECT_THAT(Prompt(), HasSubstr("{\"type\": \"function\", \"function\": {\"name\": \"f\""));
}

TEST_F(Responses, CallsAreStreamedAsItems) {
  tool_format_ = ToolFormat::kHermes;
  Serve(kTwoCalls);
  const std::vector<NamedEvent> events =
      NamedEvents(Post(kPath, Ask({{"tools", Tools()}, {"stream", true}})));
  std::vector<json> done;
  std::map<std::string, std::string> written;  // by item
  for (const NamedEvent& event : events) {
    if (event.name.ends_with(".delta"))
      written[event.data["item_id"]] += event.data["delta"].get<std::string>();
    if (event.name == "response.function_call_arguments.done") {
      EXPECT_EQ(event.data["arguments"], written[event.data["item_id"]]);
    }
    if (event.name != "response.output_item.done") continue;
    EXPECT_EQ(event.data["output_index"], done.size());
    done.push_back(event.data["item"]);
  }
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[0]["content"][0]["text"], written[done[0]["id"]]);
  EXPECT_EQ(done[1]["arguments"], "{\"city\": \"Köln\"}");
  EXPECT_EQ(done[2]["arguments"], "{}");
  EXPECT_EQ(events.back().data["response"]["output"], json(done));
}

TEST_F(Responses, TheHistoryIsRenderedByTheTemplate) {
  tool_format_ = ToolFormat::kHermes;
  reasoning_ = true;
  Serve("ok");
  const std::string body = R"({"model": "tiny", "input": [
    {"role": "developer", "content": "be kind"},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [],
     "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
     "content": [{"type": "output_text", "text": "so", "annotations": []}]},
    {"type": "function_call", "id": "fc_1", "call_id": "1", "name": "f",
     "arguments": "{\"q\": 1, \"p\": {\"b\": 1.0, \"a\": \"é\"}}"},
    {"type": "function_call", "call_id": "2", "name": "g", "arguments": ""},
    {"type": "function_call_output", "call_id": "1", "output": "21"},
    {"type": "function_call_output", "call_id": "2",
     "output": [{"type": "input_text", "text": "no"}]},
    {"role": "user", "content": "go on"}]})";
  const ClientResponse response = Request("POST", kPath, body);
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(Prompt(),
            "system=be kind;user=x;assistant=(hm)so[f:{\"q\": 1, \"p\": {\"b\": 1.0, \"a\": "
            "\"é\"}}][g:{}];tool=21;tool=no;user=go on;");
}

TEST_F(Responses, ReasoningIsAnItem) {
  reasoning_ = true;
  Serve("So it is.</think>\n\nYes.");
  const json body = Ask({{"chat_template_kwargs", {{"enable_thinking", true}}}});
  const json response = Post(kPath, body).json();
  ASSERT_EQ(response["output"].size(), 2u) << response;
  EXPECT_EQ(response["output"][0]["type"], "reasoning");
  EXPECT_EQ(response["output"][0]["content"][0]["text"], " So it is.");
  EXPECT_EQ(response["output"][1]["content"][0]["text"], "Yes.");
  json streamed = body;
  streamed["stream"] = true;
  const auto events = NamedEvents(Post(kPath, streamed));
  const std::vector<std::string> names = NamesOf(events);
  EXPECT_THAT(names, ::testing::Contains("response.reasoning_text.delta"));
  EXPECT_THAT(names, ::testing::Contains("response.reasoning_text.done"));
  EXPECT_EQ(events.back().data["response"]["output"].size(), 2u);
}

TEST_F(Responses, AChoiceOfToolsAndAFormatConstrainTheAnswer) {
  tool_format_ = ToolFormat::kHermes;
  Serve("{\"city\": \"x\"}");
  const json schema = Tools()[0]["parameters"];
  const json constrained[] = {
      {{"tools", Tools()}, {"tool_choice", {{"type", "function"}, {"name", "f"}}}},
      {{"tools", Tools()}, {"tool_choice", "required"}, {"parallel_tool_calls", false}},
      {{"text", {{"format", {{"type", "json_schema"}, {"name", "n"}, {"schema", schema}}}}}},
      {{"text", {{"format", {{"type", "json_object"}}}}}},
  };
  for (const json& more : constrained) {
    const ClientResponse response = Post(kPath, Ask(more));
    ASSERT_EQ(response.status, 200) << response.body;
    EXPECT_FALSE(engine_->requests().back().sampling.grammar.empty()) << more;
  }
  EXPECT_EQ(Post(kPath, Ask({{"text", {{"format", {{"type", "text"}}}}}})).status, 200);
  EXPECT_TRUE(engine_->requests().back().sampling.grammar.empty());
}

TEST_F(Responses, NothingIsIgnoredThatChangesTheAnswer) {
  tool_format_ = ToolFormat::kHermes;
  Serve("ok");
  const std::pair<const char*, json> refused[] = {
      {"input", nullptr},
      {"input", json::array()},
      {"input", {{{"role", "assistant"}, {"content", "So"}}}},
      {"input", {{{"type", "item_reference"}, {"id", "msg_1"}}}},
      {"input", {{{"type", "web_search_call"}}}},
      {"input", {{{"role", "user"}, {"content", {{{"type", "input_image"}}}}}}},
      {"input", {1}},
      {"instructions", {1}},
      {"previous_response_id", "resp_1"},
      {"conversation", "c"},
      {"prompt", {{"id", "p"}}},
      {"store", true},
      {"background", true},
      {"truncation", "auto"},
      {"max_tool_calls", 2},
      {"top_logprobs", 2},
      {"include", {"message.output_text.logprobs"}},
      {"max_output_tokens", 0},
      {"max_output_tokens", 5000},
      {"temperature", 3},
      {"text", {{"verbosity", "low"}}},
      {"text", {{"format", {{"type", "json_schema"}}}}},
      {"reasoning", {{"summary", "detailed"}}},
      {"tools", {{{"type", "web_search"}}}},
      {"tool_choice", "required"},
      {"tool_choice", {{"type", "allowed_tools"}}},
      {"frequency_penalty", 1},
      {"n", 2},
  };
  for (const auto& [name, value] : refused) {
    SCOPED_TRACE(std::string(name) + ": " + value.dump());
    const ClientResponse response = Post(kPath, Ask({{name, value}}));
    EXPECT_EQ(response.status, 400) << response.body;
    EXPECT_THAT(response.json()["error"]["message"].get<std::string>(), HasSubstr(name));
  }
  EXPECT_TRUE(engine_->requests().empty());
}

TEST_F(Responses, FieldsWithoutABearingOnTheAnswerAreTaken) {
  Serve("ok");
  const json more = {{"store", false},
                     {"metadata", {{"k", "v"}}},
                     {"user", "u"},
                     {"service_tier", "auto"},
                     {"truncation", "disabled"},
                     {"unheard_of", nullptr},
                     {"include", {"reasoning.encrypted_content"}}};
  EXPECT_EQ(Post(kPath, Ask(more)).status, 200);
}

TEST_F(Responses, AnErrorInAStreamIsTold) {
  Serve("One two three four five six.");
  engine_->FailAfter(3, PeerLost("compute node c0 is lost"));
  const std::vector<NamedEvent> events = NamedEvents(Post(kPath, Ask({{"stream", true}})));
  EXPECT_EQ(events.back().name, "response.failed");
  EXPECT_EQ(events.back().data["response"]["status"], "failed");
  EXPECT_EQ(events[events.size() - 2].name, "error");
  EXPECT_THAT(events.back().data["response"]["error"]["message"].get<std::string>(),
              HasSubstr("c0"));
}

// A stream repeats at its end what was in it, so that counts as memory until then.
TEST_F(Responses, StreamsCountAsMemory) {
  options_.service.max_answer_bytes = 4000;
  chat_template_ = std::move(*ChatTemplate::Parse(kShowingTemplate, {}));
  StartServer(AlwaysAnswer(std::vector<TokenId>(900, 488)));
  const std::vector<NamedEvent> events = NamedEvents(Post(kPath, Ask({{"stream", true}})));
  EXPECT_EQ(events.back().name, "response.failed");
}

// A client that reads is not cut off because a stream's last events are long.
TEST_F(Responses, StreamsMayEndWithMoreThanMayWait) {
  options_.max_send_queue_bytes = size_t{16} << 10;  // of 80 tokens: a client may be late by 80 ms
  max_model_len_ = 4096;
  chat_template_ = std::move(*ChatTemplate::Parse(kShowingTemplate, {}));
  StartServer(AlwaysAnswer(std::vector<TokenId>(3000, 488)));
  engine_->SetTokenTime(milliseconds(1));
  const std::vector<NamedEvent> events = NamedEvents(Post(kPath, Ask({{"stream", true}})));
  ASSERT_EQ(events.back().name, "response.incomplete");
  const std::string text = events.back().data["response"]["output"][0]["content"][0]["text"];
  EXPECT_GT(text.size() * 4, options_.max_send_queue_bytes * 2);
}

TEST_F(Responses, WhatIsLongIsNotRepeated) {
  Serve("ok");
  const json response =
      Post(kPath, Ask({{"metadata", {{"k", std::string(70 << 10, 'x')}}}})).json();
  EXPECT_EQ(response["metadata"], json::object());
}

}  // namespace responses_test
}  // namespace lamina::testing
