// Ollama's API and what llama.cpp's clients ask for.
#include <sstream>

#include "tests/support/protocol_fixture.h"

namespace lamina::testing {
namespace ollama_test {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kTwoCalls[] =
    "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": \"Köln\"}}\n"
    "</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";

class Ollama : public ProtocolTest {
 protected:
  static json Ask(const json& more = json::object()) {
    json body = {{"model", "tiny"}, {"messages", {{{"role", "user"}, {"content", "x"}}}}};
    body.update(more);
    return body;
  }
  static json Whole(const json& more = json::object()) {
    json body = Ask(more);
    body["stream"] = false;
    return body;
  }
  static json Tools() {
    return json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
  }

  // The lines of a stream, each of which is JSON; the last one alone is done.
  static std::vector<json> Lines(const ClientResponse& response) {
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_TRUE(response.complete);
    EXPECT_EQ(response.headers.at("content-type"), "application/x-ndjson");
    std::vector<json> lines;
    std::istringstream text(response.body);
    for (std::string line; std::getline(text, line);)
      lines.push_back(json::parse(line, nullptr, false));
    for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i]["done"], i + 1 == lines.size());
    return lines;
  }
};

TEST_F(Ollama, ChatsAreStreamsOfLinesUnlessAskedOtherwise) {
  Serve("Hello there.");
  const std::vector<json> lines = Lines(Post("/api/chat", Ask()));
  std::string text;
  for (const json& line : lines) {
    EXPECT_EQ(line["model"], "tiny");
    EXPECT_EQ(line["message"]["role"], "assistant");
    text += line["message"]["content"];
  }
  EXPECT_EQ(text, " Hello there.");
  EXPECT_EQ(lines.back()["done_reason"], "stop");
  EXPECT_EQ(lines.back()["prompt_eval_count"], engine_->requests().back().prompt.size());
  EXPECT_GT(lines.back()["eval_count"], 0);
  EXPECT_GE(lines.back()["total_duration"], lines.back()["eval_duration"]);
  EXPECT_THAT(lines[0]["created_at"].get<std::string>(),
              ::testing::MatchesRegex("20..-..-..T..:..:..\\........?Z"));

  const json whole = Post("/api/chat", Whole({{"model", "tiny:latest"}})).json();
  EXPECT_EQ(whole["message"]["content"], text);
  EXPECT_EQ(whole["done"], true);
}

TEST_F(Ollama, TextIsGeneratedFromAPrompt) {
  Serve("Hello there.");
  const json ask = {{"model", "tiny"}, {"prompt", "x"}, {"system", "be kind"}};
  std::string text;
  for (const json& line : Lines(Post("/api/generate", ask))) text += line["response"];
  EXPECT_EQ(text, " Hello there.");
  EXPECT_EQ(Prompt(), "system=be kind;user=x;");
  const json raw = {{"model", "tiny"}, {"prompt", "x y"}, {"raw", true}, {"stream", false}};
  EXPECT_EQ(Post("/api/generate", raw).json()["response"], text);
  EXPECT_THAT(Prompt(), HasSubstr("x y"));
  EXPECT_THAT(Prompt(), ::testing::Not(HasSubstr("user")));
  EXPECT_GT(engine_->requests().back().max_new_tokens, 900) << "as many as fit";
}

TEST_F(Ollama, ARequestForNothingSaysThatTheModelIsLoaded) {
  Serve("ok");
  for (const char* path : {"/api/chat", "/api/generate"}) {
    const json answer = Post(path, {{"model", "tiny"}, {"keep_alive", 60}}).json();
    EXPECT_EQ(answer["done"], true);
    EXPECT_EQ(answer["done_reason"], "load");
  }
  EXPECT_TRUE(engine_->requests().empty());
}

TEST_F(Ollama, OptionsAreAsAskedFor) {
  Serve("One two three four five six seven eight.");
  const json options = {{"num_predict", 4},      {"temperature", 0.25}, {"top_k", 7},
                        {"top_p", 0.5},          {"min_p", 0.1},        {"seed", 42},
                        {"repeat_penalty", 1.5}, {"stop", {"zzz"}},     {"num_ctx", 4096}};
  const json answer = Post("/api/chat", Whole({{"options", options}})).json();
  EXPECT_EQ(answer["done_reason"], "length") << answer;
  EXPECT_EQ(answer["eval_count"], 4);
  const GenerateRequest request = engine_->requests().back();
  EXPECT_EQ(request.sampling.temperature, 0.25f);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_EQ(request.sampling.top_p, 0.5f);
  EXPECT_EQ(request.sampling.min_p, 0.1f);
  EXPECT_EQ(request.sampling.seed, 42u);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(
      Post("/api/chat", Whole({{"options", {{"stop", {" five"}}}}})).json()["message"]["content"],
      " One two three four");
}

TEST_F(Ollama, AFormatConstrainsTheAnswer) {
  Serve("{}");
  for (const json& format : {json("json"), json({{"type", "object"}})}) {
    ASSERT_EQ(Post("/api/chat", Whole({{"format", format}})).status, 200) << format;
    EXPECT_FALSE(engine_->requests().back().sampling.grammar.empty());
  }
  ASSERT_EQ(Post("/api/chat", Whole({{"format", ""}})).status, 200);
  EXPECT_TRUE(engine_->requests().back().sampling.grammar.empty());
}

TEST_F(Ollama, CallsAreWholeAndTheirArgumentsObjects) {
  tool_format_ = ToolFormat::kHermes;
  Serve(kTwoCalls);
  const json whole = Post("/api/chat", Whole({{"tools", Tools()}})).json()["message"];
  EXPECT_EQ(whole["content"], " Let me see.");
  ASSERT_EQ(whole["tool_calls"].size(), 2u);
  EXPECT_EQ(whole["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(whole["tool_calls"][0]["function"]["arguments"], json({{"city", "Köln"}}));
  std::vector<json> calls;
  for (const json& line : Lines(Post("/api/chat", Ask({{"tools", Tools()}})))) {
    for (const json& call : line["message"].value("tool_calls", json::array()))
      calls.push_back(call["function"]);
  }
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0], whole["tool_calls"][0]["function"]);
  EXPECT_EQ(calls[1]["arguments"], json::object());
}

TEST_F(Ollama, TheHistoryIsRenderedByTheTemplate) {
  tool_format_ = ToolFormat::kHermes;
  Serve("ok",
        "{% for m in messages %}{{ m.role }}={{ m.content }}{{ m.tool_call_id or '' }}"
        "{% for c in m.tool_calls or [] %}[{{ c.id }}:{{ c.function.name }}:"
        "{{ c.function.arguments|tojson }}]{% endfor %};{% endfor %}");
  const std::string body = R"({"model": "tiny", "stream": false, "messages": [
    {"role": "user", "content": "x"},
    {"role": "assistant", "content": "", "tool_calls": [
      {"function": {"name": "f", "arguments": {"q": 1, "p": "é"}}},
      {"function": {"name": "g", "arguments": {}}}]},
    {"role": "tool", "tool_name": "g", "content": "2 "},
    {"role": "tool", "content": "1 "}]})";
  const ClientResponse response = Request("POST", "/api/chat", body);
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(Prompt(),
            "user=x;assistant=[000000001:f:{\"q\": 1, \"p\": \"é\"}][000000002:g:{}];"
            "tool=2 000000002;tool=1 000000001;");
}

TEST_F(Ollama, ThinkingIsApart) {
  reasoning_ = true;
  Serve("So it is.</think>\n\nYes.");
  const json message = Post("/api/chat", Whole({{"think", true}})).json()["message"];
  EXPECT_EQ(message["thinking"], " So it is.");
  EXPECT_EQ(message["content"], "Yes.");
  std::string thinking;
  const json ask = {{"model", "tiny"}, {"prompt", "x"}, {"think", true}};
  for (const json& line : Lines(Post("/api/generate", ask))) thinking += line.value("thinking", "");
  EXPECT_EQ(thinking, " So it is.");
}

TEST_F(Ollama, NothingIsIgnoredThatChangesTheAnswer) {
  Serve("ok");
  const std::pair<const char*, json> refused[] = {
      {"model", nullptr},
      {"messages", "x"},
      {"messages", {{{"role", "user"}, {"content", "x"}, {"images", {"AAAA"}}}}},
      {"messages", {{{"role", "user"}, {"content", 1}}}},
      {"tools", Tools()},
      {"format", "yaml"},
      {"think", true},
      {"logprobs", true},
      {"options", {{"num_predict", 0}}},
      {"options", {{"num_predict", 5000}}},
      {"options", {{"temperature", 3}}},
      {"options", {{"mirostat", 2}}},
      {"options", {{"typical_p", 0.5}}},
      {"options", {{"repeat_last_n", 64}}},
      {"options", {{"repeat_penalty", 0}}},
      {"options", {{"unheard_of", 1}}},
      {"unheard_of", 1},
  };
  for (const auto& [name, value] : refused) {
    SCOPED_TRACE(std::string(name) + ": " + value.dump());
    const ClientResponse response = Post("/api/chat", Ask({{name, value}}));
    EXPECT_EQ(response.status, 400) << response.body;
    const bool in_options = name == std::string("options");
    ASSERT_TRUE(response.json()["error"].is_string()) << response.body;
    EXPECT_THAT(response.json()["error"].get<std::string>(),
                HasSubstr(in_options ? value.begin().key() : name));
  }
  for (const char* field : {"suffix", "template", "images"}) {
    const ClientResponse response =
        Post("/api/generate", {{"model", "tiny"}, {"prompt", "x"}, {field, {"x"}}});
    EXPECT_EQ(response.status, 400);
    EXPECT_THAT(response.body, HasSubstr(field));
  }
  EXPECT_EQ(Post("/api/chat", Ask({{"model", "llama3"}})).status, 404);
  EXPECT_TRUE(engine_->requests().empty());
}

TEST_F(Ollama, AnErrorInAStreamIsALine) {
  Serve("One two three four five six.");
  engine_->FailAfter(3, PeerLost("compute node c0 is lost"));
  const ClientResponse response = Post("/api/chat", Ask());
  const size_t last = response.body.rfind('\n', response.body.size() - 2);
  EXPECT_EQ(json::parse(response.body.substr(last + 1)),
            json({{"error", "compute node c0 is lost"}}));
}

// Lines have no comments, but white space may stand in front of one.
TEST_F(Ollama, SilentStreamsSendWhiteSpace) {
  options_.comment_interval = std::chrono::milliseconds(20);
  Serve("Hello there.");
  engine_->PauseAfter(0);
  ClientConnection connection(port());
  connection.SendRequest("POST", "/api/chat", Ask().dump());
  ASSERT_TRUE(connection.ReceiveUntil("1\r\n \r\n1\r\n \r\n"));
  engine_->Resume();
  EXPECT_EQ(Lines(connection.Receive()).back()["done"], true);
}

TEST_F(Ollama, TheModelIsDescribed) {
  tool_format_ = ToolFormat::kHermes;
  Serve("ok");
  const json tags = Get("/api/tags").json();
  ASSERT_EQ(tags["models"].size(), 1u);
  EXPECT_EQ(tags["models"][0]["name"], "tiny");
  EXPECT_EQ(tags["models"][0]["digest"].get<std::string>().size(), 64u);
  EXPECT_EQ(Get("/api/ps").json()["models"][0]["context_length"], 1024);
  EXPECT_TRUE(Get("/api/version").json()["version"].is_string());
  const json show = Post("/api/show", {{"model", "tiny:latest"}}).json();
  EXPECT_THAT(show["capabilities"].get<std::vector<std::string>>(),
              ElementsAre("completion", "tools"));
  EXPECT_EQ(show["template"], kShowingTemplate);
  EXPECT_EQ(Post("/api/show", {{"model", "llama3"}}).status, 404);
  EXPECT_EQ(Post("/api/show", json::object()).status, 400);
}

TEST_F(Ollama, LlamaCppsClientsLearnSlotsAndTemplate) {
  Serve("ok");
  engine_->SetStatus([] {
    EngineStatus status;
    status.scheduler.num_running = 2;
    return status;
  }());
  const json props = Get("/props").json();
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 1024);
  EXPECT_EQ(props["chat_template"], kShowingTemplate);
  const json slots = Get("/slots").json();
  EXPECT_EQ(slots.size(), props["total_slots"]);
  EXPECT_EQ(
      std::ranges::count_if(slots, [](const json& slot) { return slot["is_processing"] == true; }),
      2);
}

}  // namespace ollama_test
}  // namespace lamina::testing
