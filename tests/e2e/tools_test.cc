// Calls of tools by the shipped model, over HTTP and real processes. It knows no tools: with a chat
// template that shows them, and constrained to call them, it has to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class Tools : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::copy(SourcePath("/models/tiny-stories"), folder_ / "stories");
    std::ifstream golden(SourcePath("/tests/text/tool_calls_golden.json"));
    WriteFile(folder_ / "stories/chat_template.jinja",
              json::parse(golden)["hermes"]["template"].get<std::string>());
    auto started = ServerProcess::Start(
        {folder_ / "stories", "--memory-nodes", "1", "--log-requests", "--allowed-origins", "*"});
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }

  static json Ask(json more) {
    json body = {{"messages", {{{"role", "user"}, {"content", "Where is Rosa?"}}}},
                 {"max_tokens", 200},
                 {"temperature", 1.5},
                 {"seed", 3}};
    body["tools"] = json::parse(R"([
      {"type": "function", "function": {"name": "find", "description": "Finds somebody",
       "parameters": {"type": "object", "properties": {"who": {"$ref": "#/$defs/name"},
         "days": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["who", "days"],
         "additionalProperties": false, "$defs": {"name": {"type": "string", "maxLength": 8}}}}},
      {"type": "function", "function": {"name": "now",
       "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}}])");
    body.update(more);
    return body;
  }

  json Answer(const json& body) const {
    const Result<HttpResponse> response =
        server_->client().PostJson("/v1/chat/completions", body.dump());
    EXPECT_TRUE(response.ok() && response->ok())
        << (response.ok() ? response->body : response.status().message());
    return response.ok() ? json::parse(response->body, nullptr, false) : json();
  }

  static void ExpectCall(const json& call) {
    const std::string name = call["function"]["name"];
    const json arguments = json::parse(call["function"]["arguments"].get<std::string>());
    if (name == "now") {
      EXPECT_EQ(arguments, json::object());
      return;
    }
    ASSERT_EQ(name, "find");
    ASSERT_EQ(arguments.size(), 2u) << arguments;
    EXPECT_TRUE(arguments["who"].is_string());
    EXPECT_LE(arguments["days"].get<int>(), 9);
  }

  TemporaryFolder folder_;
  std::unique_ptr<ServerProcess> server_;
};

TEST_F(Tools, AreCalledIfThatIsDemanded) {
  const json answer = Answer(Ask({{"tool_choice", "required"},
                                  {"parallel_tool_calls", false},
                                  {"n", 8},
                                  {"request_id", "seven"}}));
  ASSERT_EQ(answer["choices"].size(), 8u);
  EXPECT_EQ(answer["id"], "chatcmpl-seven");
  for (const json& choice : answer["choices"]) {
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
    ExpectCall(choice["message"]["tool_calls"][0]);
  }
  EXPECT_THAT(server_->output(), HasSubstr("request seven: "));

  // The conversation goes on with the result.
  json body = Ask(json::object());
  json message = answer["choices"][0]["message"];
  body["messages"].push_back(message);
  body["messages"].push_back({{"role", "tool"},
                              {"tool_call_id", message["tool_calls"][0]["id"]},
                              {"content", "in the garden"}});
  EXPECT_FALSE(Answer(body)["choices"][0]["message"]["role"].is_null());
}

TEST_F(Tools, ACallOfOneToolIsStreamed) {
  json body = Ask({{"tool_choice", {{"type", "function"}, {"function", {{"name", "find"}}}}}});
  const json whole = Answer(body)["choices"][0]["message"]["tool_calls"][0];
  ExpectCall(whole);
  body["stream"] = true;
  std::string arguments, name, finish;
  const Result<HttpResponse> response = server_->client().PostForEvents(
      "/v1/chat/completions", body.dump(), [&](std::string_view data) {
        const json event = json::parse(data, nullptr, false);
        if (!event.is_object()) return true;  // [DONE]
        const json& choice = event["choices"][0];
        for (const json& call : choice["delta"].value("tool_calls", json::array())) {
          name += call["function"].value("name", "");
          arguments += call["function"]["arguments"].get<std::string>();
        }
        if (!choice["finish_reason"].is_null()) finish = choice["finish_reason"];
        return true;
      });
  ASSERT_TRUE(response.ok() && response->ok());
  EXPECT_EQ(name, "find");
  EXPECT_EQ(arguments, whole["function"]["arguments"].get<std::string>());
  EXPECT_EQ(finish, "tool_calls");
}

TEST_F(Tools, MayBeLeftAlone) {
  for (const char* choice : {"auto", "none"}) {
    const json message = Answer(Ask({{"tool_choice", choice}}))["choices"][0]["message"];
    EXPECT_TRUE(message["content"].is_string()) << choice << message;
  }
}

}  // namespace
}  // namespace lamina::testing
