// Anthropic's Messages API: requests that become chats, and chats that become messages.
#include "tests/support/protocol_fixture.h"

namespace lamina::testing {
namespace messages_test {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kPath[] = "/v1/messages";
constexpr char kTwoCalls[] =
    "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": \"Köln\"}}\n"
    "</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";

class Messages : public ProtocolTest {
 protected:
  static json Ask(const json& more = json::object()) {
    json body = {{"model", "tiny"},
                 {"max_tokens", 300},
                 {"messages", {{{"role", "user"}, {"content", "x"}}}}};
    body.update(more);
    return body;
  }
  static json Tools() {
    return json::parse(R"([{"name": "f", "description": "finds",
      "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}])");
  }
};

TEST_F(Messages, AreAnsweredWithABlockOfText) {
  Serve("Hello there.");
  const ClientResponse response = Request(
      "POST", kPath, Ask().dump(), "X-Request-Id: seven\r\nAnthropic-Version: 2023-06-01\r\n");
  ASSERT_EQ(response.status, 200) << response.body;
  const json message = response.json();
  EXPECT_EQ(message["id"], "msg_seven");
  EXPECT_EQ(message["type"], "message");
  EXPECT_EQ(message["role"], "assistant");
  EXPECT_EQ(message["model"], "tiny");
  EXPECT_EQ(message["content"], json::parse(R"([{"type": "text", "text": " Hello there."}])"));
  EXPECT_EQ(message["stop_reason"], "end_turn");
  EXPECT_TRUE(message["stop_sequence"].is_null());
  const size_t num_prompt = engine_->requests().back().prompt.size();
  EXPECT_EQ(message["usage"]["input_tokens"], num_prompt);
  EXPECT_GT(message["usage"]["output_tokens"], 0);
  EXPECT_EQ(Prompt(), "user=x;");

  json count = Ask();
  count.erase("max_tokens");
  EXPECT_EQ(Post("/v1/messages/count_tokens", count).json(), json({{"input_tokens", num_prompt}}));
}

TEST_F(Messages, EndAtTheirLimitOrAtAStopSequence) {
  Serve("One two three four five six seven eight nine ten.");
  json message = Post(kPath, Ask({{"max_tokens", 4}})).json();
  EXPECT_EQ(message["stop_reason"], "max_tokens");
  EXPECT_EQ(message["usage"]["output_tokens"], 4);
  message = Post(kPath, Ask({{"stop_sequences", {"zzz", " six"}}})).json();
  EXPECT_EQ(message["stop_reason"], "stop_sequence");
  EXPECT_EQ(message["stop_sequence"], " six");
  EXPECT_EQ(message["content"][0]["text"], " One two three four five");
}

TEST_F(Messages, AreStreamedAsEventsWithNames) {
  Serve("Hello there.");
  const std::vector<NamedEvent> events = NamedEvents(Post(kPath, Ask({{"stream", true}})));
  EXPECT_THAT(NamesOf(events),
              ElementsAre("message_start", "ping", "content_block_start", "content_block_delta",
                          "content_block_stop", "message_delta", "message_stop"));
  std::string text;
  for (const NamedEvent& event : events) {
    if (event.name == "content_block_delta") text += event.data["delta"]["text"];
  }
  EXPECT_EQ(text, " Hello there.");
  const json& start = events.front().data["message"];
  EXPECT_EQ(start["content"], json::array());
  EXPECT_TRUE(start["stop_reason"].is_null());
  EXPECT_EQ(start["usage"]["input_tokens"], engine_->requests().back().prompt.size());
  const json& delta = events[events.size() - 2].data;
  EXPECT_EQ(delta["delta"]["stop_reason"], "end_turn");
  EXPECT_GT(delta["usage"]["output_tokens"], 0);
}

TEST_F(Messages, CallsAreBlocks) {
  tool_format_ = ToolFormat::kHermes;
  Serve(kTwoCalls);
  const json body = Ask({{"tools", Tools()}});
  const json message = Post(kPath, body).json();
  EXPECT_EQ(message["stop_reason"], "tool_use");
  ASSERT_EQ(message["content"].size(), 3u) << message;
  EXPECT_EQ(message["content"][0]["text"], " Let me see.");
  EXPECT_EQ(message["content"][1]["type"], "tool_use");
  EXPECT_EQ(message["content"][1]["name"], "f");
  EXPECT_EQ(message["content"][1]["input"], json({{"city", "Köln"}}));
  EXPECT_EQ(message["content"][2]["input"], json::object());
  EXPECT_NE(message["content"][1]["id"], message["content"][2]["id"]);
  EXPECT_EQ(Prompt(),
            "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"finds\", "
            "\"parameters\": {\"properties\": {\"city\": {\"type\": \"string\"}}, \"type\": "
            "\"object\"}}};user=x;");
}

TEST_F(Messages, CallsAreStreamedAsBlocks) {
  tool_format_ = ToolFormat::kHermes;
  Serve(kTwoCalls);
  const std::vector<NamedEvent> events =
      NamedEvents(Post(kPath, Ask({{"tools", Tools()}, {"stream", true}})));
  std::vector<std::string> types, contents;
  int open = -1;
  for (const NamedEvent& event : events) {
    if (event.name == "content_block_start") {
      EXPECT_EQ(open, -1) << "the block before is not closed";
      open = event.data["index"];
      EXPECT_EQ(open, static_cast<int>(types.size()));
      types.push_back(event.data["content_block"]["type"]);
      contents.emplace_back();
    } else if (event.name == "content_block_delta") {
      EXPECT_EQ(event.data["index"], open);
      const json& delta = event.data["delta"];
      contents.back() += delta.value("text", "") + delta.value("partial_json", "");
    } else if (event.name == "content_block_stop") {
      EXPECT_EQ(event.data["index"], open);
      open = -1;
    }
  }
  EXPECT_THAT(types, ElementsAre("text", "tool_use", "tool_use"));
  EXPECT_THAT(contents, ElementsAre(" Let me see.", "{\"city\": \"Köln\"}", "{}"));
  EXPECT_EQ(events[events.size() - 2].data["delta"]["stop_reason"], "tool_use");
}

TEST_F(Messages, ACallThatTheLimitCutsKeepsWhatThereIs) {
  tool_format_ = ToolFormat::kHermes;
  Serve("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"bcdefghijklmnopqrstuvwxyz\"}}");
  const json message = Post(kPath, Ask({{"tools", Tools()}, {"max_tokens", 40}})).json();
  EXPECT_EQ(message["stop_reason"], "max_tokens");
  EXPECT_THAT(message["content"][0]["input"]["INVALID_JSON"].get<std::string>(),
              ::testing::StartsWith("{\"a\": \"b"));
}

TEST_F(Messages, TheHistoryIsRenderedByTheTemplate) {
  tool_format_ = ToolFormat::kHermes;
  reasoning_ = true;
  Serve("ok");
  const std::string body = R"({"model": "tiny", "max_tokens": 9,
    "system": [{"type": "text", "text": "be"}, {"type": "text", "text": "kind",
                "cache_control": {"type": "ephemeral"}}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]},
      {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "so"},
        {"type": "tool_use", "id": "1", "name": "f", "input": {"q": 1, "p": {"b": 1.0, "a": "é"}}},
        {"type": "tool_use", "id": "2", "name": "g", "input": {}}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "21"}]},
        {"type": "tool_result", "tool_use_id": "2", "content": "no", "is_error": true},
        {"type": "tool_result", "tool_use_id": "2"},
        {"type": "text", "text": "go on"}]}]})";
  const ClientResponse response = Request("POST", kPath, body);
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(Prompt(),
            "system=be\nkind;user=x;assistant=(hm)so[f:{\"q\": 1, \"p\": {\"b\": 1.0, \"a\": "
            "\"é\"}}][g:{}];tool=21;tool=Error: no;tool=;user=go on;");
}

TEST_F(Messages, ReasoningIsABlockOfItsOwn) {
  reasoning_ = true;
  Serve("So it is.</think>\n\nYes.");
  const json thinking = {{"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}}};
  const json message = Post(kPath, Ask(thinking)).json();
  ASSERT_EQ(message["content"].size(), 2u) << message;
  EXPECT_EQ(message["content"][0]["type"], "thinking");
  EXPECT_EQ(message["content"][0]["thinking"], " So it is.");
  EXPECT_EQ(message["content"][1]["text"], "Yes.");
  EXPECT_THAT(Prompt(), HasSubstr("<think>"));

  json streamed = Ask(thinking);
  streamed["stream"] = true;
  std::vector<std::string> types;
  for (const NamedEvent& event : NamedEvents(Post(kPath, streamed))) {
    if (event.name == "content_block_start") types.push_back(event.data["content_block"]["type"]);
  }
  EXPECT_THAT(types, ElementsAre("thinking", "text"));

  EXPECT_EQ(Post(kPath, Ask({{"thinking", {{"type", "disabled"}}}})).status, 200);
  EXPECT_EQ(Prompt(), "user=x;");
  const json omitted = {{"thinking", {{"type", "adaptive"}, {"display", "omitted"}}}};
  EXPECT_EQ(Post(kPath, Ask(omitted)).json()["content"].size(), 1u);
}

TEST_F(Messages, AChoiceOfToolsAndASchemaConstrainTheAnswer) {
  tool_format_ = ToolFormat::kHermes;
  Serve("{\"city\": \"x\"}");
  json body = Ask({{"tools", Tools()}, {"tool_choice", {{"type", "tool"}, {"name", "f"}}}});
  const json message = Post(kPath, body).json();
  ASSERT_EQ(message["content"].size(), 1u) << message;
  EXPECT_EQ(message["content"][0]["name"], "f");
  EXPECT_FALSE(engine_->requests().back().sampling.grammar.empty());
  body["tool_choice"] = {{"type", "any"}, {"disable_parallel_tool_use", true}};
  EXPECT_EQ(Post(kPath, body).status, 200);
  EXPECT_FALSE(engine_->requests().back().sampling.grammar.empty());
  body["tool_choice"] = {{"type", "none"}};
  EXPECT_EQ(Post(kPath, body).status, 200);
  EXPECT_EQ(Prompt(), "user=x;");

  body = Ask({{"output_config",
               {{"format", {{"type", "json_schema"}, {"schema", Tools()[0]["input_schema"]}}}}}});
  EXPECT_EQ(Post(kPath, body).status, 200);
  EXPECT_FALSE(engine_->requests().back().sampling.grammar.empty());
}

TEST_F(Messages, SamplingIsAsAskedFor) {
  Serve("ok");
  ASSERT_EQ(Post(kPath, Ask({{"temperature", 0.25}, {"top_p", 0.5}, {"top_k", 7}})).status, 200);
  const GenerateRequest request = engine_->requests().back();
  EXPECT_EQ(request.sampling.temperature, 0.25f);
  EXPECT_EQ(request.sampling.top_p, 0.5f);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_EQ(request.max_new_tokens, 300);
}

// What cannot be done as asked is refused by its name.
TEST_F(Messages, NothingIsIgnoredThatChangesTheAnswer) {
  tool_format_ = ToolFormat::kHermes;
  Serve("ok");
  const std::pair<const char*, json> refused[] = {
      {"max_tokens", nullptr},
      {"model", nullptr},
      {"messages", json::array()},
      {"messages", {{{"role", "assistant"}, {"content", "So"}}}},
      {"messages", {{{"role", "tool"}, {"content", "x"}}}},
      {"content[0]", {{{"role", "user"}, {"content", {{{"type", "image"}}}}}}},
      {"text", {{{"role", "user"}, {"content", {{{"type", "text"}}}}}}},
      {"citations", json::parse(R"([{"role": "user", "content": [{"type": "text", "text": "x",
                                     "citations": {"enabled": true}}]}])")},
      {"temperature", 3},
      {"top_k", "x"},
      {"stop_sequences", "x"},
      {"stop_sequences", {1}},
      {"system", {{{"type", "image"}}}},
      {"thinking", {{"type", "adaptive"}}},
      {"tools", {{{"type", "web_search_20250305"}, {"name", "web_search"}}}},
      {"tools", {{{"name", "f"}}}},
      {"tools", {{{"name", "f"}, {"input_schema", json::object()}, {"strict", true}}}},
      {"tool_choice", {{"type", "any"}}},
      {"tool_choice", {{"type", "never"}}},
      {"output_config", {{"format", {{"type", "json_schema"}}}}},
      {"container", "c"},
      {"mcp_servers", json::array()},
      {"context_management", json::object()},
      {"frequency_penalty", 1},
  };
  for (const auto& [name, value] : refused) {
    SCOPED_TRACE(std::string(name) + ": " + value.dump());
    const std::string field = name == std::string("text") || name == std::string("citations") ||
                                      name == std::string("content[0]")
                                  ? "messages"
                                  : name;
    const ClientResponse response = Post(kPath, Ask({{field, value}}));
    EXPECT_EQ(response.status, 400) << response.body;
    const json body = response.json();
    EXPECT_EQ(body["type"], "error");
    EXPECT_EQ(body["error"]["type"], "invalid_request_error");
    EXPECT_THAT(body["error"]["message"].get<std::string>(), HasSubstr(name));
  }
  EXPECT_TRUE(engine_->requests().empty());
}

TEST_F(Messages, FieldsWithoutABearingOnTheAnswerAreTaken) {
  Serve("ok");
  const ClientResponse response = Post(
      kPath, Ask({{"metadata", {{"user_id", "u"}}}, {"service_tier", "auto"}, {"speed", "fast"}}));
  EXPECT_EQ(response.status, 200) << response.body;
}

TEST_F(Messages, ErrorsHaveAnthropicsForm) {
  options_.service.api_key = "sesame";
  Serve("ok");
  const auto error_of = [](const ClientResponse& response) {
    return std::to_string(response.status) + " " +
           response.json()["error"].value("type", response.body);
  };
  const std::string body = Ask().dump();
  EXPECT_EQ(error_of(Request("POST", kPath, body)), "401 authentication_error");
  EXPECT_EQ(error_of(Request("POST", kPath, body, "x-api-key: sesam\r\n")),
            "401 authentication_error");
  EXPECT_EQ(Request("POST", kPath, body, "x-api-key: sesame\r\n").status, 200);
  EXPECT_EQ(Request("POST", kPath, body, "Authorization: Bearer sesame\r\n").status, 200);
  const std::string key = "x-api-key: sesame\r\n";
  EXPECT_EQ(error_of(Request("GET", kPath, "", key)), "405 invalid_request_error");
  EXPECT_EQ(error_of(Request("POST", "/v1/messages/batches", body, key)), "404 not_found_error");
  EXPECT_EQ(error_of(Request("POST", kPath, Ask({{"model", "claude"}}).dump(), key)),
            "404 not_found_error");
  EXPECT_EQ(error_of(Request("POST", kPath, "{", key)), "400 invalid_request_error");
  EXPECT_EQ(error_of(Request("POST", kPath, std::string(9 << 20, ' '), key)),
            "413 request_too_large");
  const ClientResponse too_long = Request("POST", kPath, Ask({{"max_tokens", 5000}}).dump(), key);
  EXPECT_EQ(error_of(too_long), "400 invalid_request_error");
  EXPECT_THAT(too_long.body, HasSubstr("max_tokens 5000 is too large"));
  server_->SetEngine(nullptr);
  EXPECT_EQ(error_of(Request("POST", kPath, body, key)), "503 overloaded_error");
}

TEST_F(Messages, AnErrorInAStreamIsAnEvent) {
  Serve("One two three four five six.");
  engine_->FailAfter(3, PeerLost("compute node c0 is lost"));
  const std::vector<NamedEvent> events = NamedEvents(Post(kPath, Ask({{"stream", true}})));
  EXPECT_EQ(events.back().name, "error");
  EXPECT_EQ(events.back().data["error"]["type"], "overloaded_error");
  EXPECT_THAT(events.back().data["error"]["message"].get<std::string>(), HasSubstr("c0"));
}

TEST_F(Messages, AClientThatLeavesEndsItsRequest) {
  Serve("One two three four five six.");
  engine_->PauseAfter(3);
  ClientConnection connection(port());
  connection.SendRequest("POST", kPath, Ask({{"stream", true}}).dump());
  ASSERT_TRUE(connection.ReceiveUntil("content_block_delta"));
  connection.Close();
  EXPECT_TRUE(engine_->WaitForAborts(1, Soon()));
}

}  // namespace messages_test
}  // namespace lamina::testing
