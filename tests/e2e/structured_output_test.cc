// Constrained answers of the shipped model over HTTP and real processes, at a temperature at which
// it would write anything else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <thread>

#include "tests/support/paths.h"
#include "tests/support/server_process.h"

namespace lamina::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::HasSubstr;

std::unique_ptr<ServerProcess> Served() {
  Result<std::unique_ptr<ServerProcess>> started =
      ServerProcess::Start({SourcePath("/models/tiny-stories"), "--memory-nodes", "2"});
  EXPECT_TRUE(started.ok()) << started.status();
  return started.ok() ? *std::move(started) : nullptr;
}

json Body(const json& constraint) {
  json body = {
      {"prompt", "Once upon a time"}, {"max_tokens", 200}, {"temperature", 2}, {"seed", 5}};
  body.update(constraint);
  return body;
}

struct Answered {
  std::string text, finish_reason;
};

std::vector<Answered> Complete(const ServerProcess& server, const json& constraint) {
  const Result<HttpResponse> response =
      server.client().PostJson("/v1/completions", Body(constraint).dump());
  EXPECT_TRUE(response.ok() && response->ok())
      << constraint << (response.ok() ? response->body : response.status().message());
  std::vector<Answered> answers;
  if (!response.ok() || !response->ok()) return answers;
  for (const json& choice : json::parse(response->body)["choices"])
    answers.push_back({choice["text"], choice["finish_reason"]});
  return answers;
}

std::string Streamed(const ServerProcess& server, const json& constraint,
                     const std::function<void()>& on_event = {}) {
  json body = Body(constraint);
  body["stream"] = true;
  std::string text;
  const Result<HttpResponse> response =
      server.client().PostForEvents("/v1/completions", body.dump(), [&](std::string_view data) {
        const json event = json::parse(data, nullptr, false);
        if (event.contains("error")) ADD_FAILURE() << event;
        if (event.contains("choices")) text += event["choices"][0].value("text", "");
        if (on_event) on_event();
        return true;
      });
  EXPECT_TRUE(response.ok() && response->ok());
  return text;
}

const json kSchema = json::parse(R"({"type": "object", "required": ["name", "age", "tags"],
  "additionalProperties": false, "properties": {"name": {"type": "string", "maxLength": 12},
  "age": {"type": "integer", "minimum": 0, "maximum": 99}, "tags": {"type": "array", "maxItems": 2,
  "items": {"enum": ["red", "green", "blue"]}}}})");

bool Satisfies(const std::string& text) {
  const json value = json::parse(text, nullptr, false);
  if (!value.is_object() || value.size() != 3 || !value.contains("name")) return false;
  const std::set<std::string> colours = {"red", "green", "blue"};
  return value["name"].is_string() && value["age"].is_number_unsigned() && value["age"] <= 99 &&
         value["tags"].is_array() && value["tags"].size() <= 2 &&
         std::ranges::all_of(value["tags"], [&](const json& tag) {
           return tag.is_string() && colours.contains(tag.get<std::string>());
         });
}

TEST(StructuredOutput, AnswersAreWhatTheRequestDemands) {
  const std::unique_ptr<ServerProcess> server = Served();
  ASSERT_NE(server, nullptr);
  for (const json& choice : {json{{"guided_choice", {"blue", "green", "greenish"}}},
                             json{{"structured_outputs", {{"choice", {"blue", "green"}}}}}}) {
    for (const Answered& answer : Complete(*server, [&] {
           json c = choice;
           c["n"] = 4;
           return c;
         }())) {
      EXPECT_THAT(answer.text, AnyOf("blue", "green", "greenish"));
      EXPECT_EQ(answer.finish_reason, "stop");
    }
  }
  const std::string pattern = "[A-Z][a-z]{2,6} \\d{1,3}(, [A-Z][a-z]{2,6} \\d{1,3}){0,2}";
  for (const char* field : {"guided_regex", "regex"}) {
    const std::vector<Answered> answers = Complete(*server, {{field, pattern}, {"n", 8}});
    EXPECT_EQ(answers.size(), 8u);
    for (const Answered& answer : answers)
      EXPECT_TRUE(std::regex_match(answer.text, std::regex(pattern))) << answer.text;
  }
  for (const json& grammar : {json{{"guided_grammar", "root ::= [a-c]+ \"!\""}},
                              json{{"grammar", "root ::= [a-c]+ \"!\""}}}) {
    const std::vector<Answered> answers = Complete(*server, grammar);
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_TRUE(std::regex_match(answers[0].text, std::regex("[a-c]+!?"))) << answers[0].text;
    EXPECT_EQ(answers[0].text.ends_with('!'), answers[0].finish_reason == "stop");
  }
  const json format = {{"type", "json_schema"},
                       {"json_schema", {{"name", "x"}, {"schema", kSchema}}}};
  for (const json& schema : {json{{"response_format", format}}, json{{"guided_json", kSchema}},
                             json{{"guided_json", kSchema.dump()}}, json{{"json_schema", kSchema}},
                             json{{"structured_outputs", {{"json", kSchema}}}}}) {
    const std::vector<Answered> answers = Complete(*server, schema);
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_TRUE(Satisfies(answers[0].text)) << answers[0].text;
    EXPECT_EQ(answers[0].finish_reason, "stop");
    EXPECT_EQ(Streamed(*server, schema), answers[0].text);
  }
  const json object = {
      {"response_format", {{"type", "json_object"}}}, {"temperature", 0.7}, {"n", 4}};
  for (const Answered& answer : Complete(*server, object)) {
    EXPECT_TRUE(answer.text.starts_with("{")) << answer.text;
    if (answer.finish_reason == "stop") {
      EXPECT_TRUE(json::accept(answer.text)) << answer.text;
    }
  }
}

TEST(StructuredOutput, TokensAreKeptOutAndIn) {
  const std::unique_ptr<ServerProcess> server = Served();
  ASSERT_NE(server, nullptr);
  const json greedy = {{"temperature", 0}, {"max_tokens", 40}};
  const auto with = [&](const json& more) {
    json constraint = greedy;
    constraint.update(more);
    const std::vector<Answered> answers = Complete(*server, constraint);
    return answers.empty() ? std::string() : answers[0].text;
  };
  const std::string plain = with({});
  const std::string word = plain.substr(1, plain.find_first_of(" ,.", 1) - 1);
  ASSERT_FALSE(word.empty()) << plain;
  EXPECT_THAT(with({{"bad_words", {word}}}), Not(::testing::StartsWith(" " + word)));
  const Result<HttpResponse> tokens = server->client().PostJson(
      "/tokenize", json{{"prompt", " the cat"}, {"add_special_tokens", false}}.dump());
  ASSERT_TRUE(tokens.ok() && tokens->ok());
  const json ids = json::parse(tokens->body)["tokens"];
  const std::string text = with({{"allowed_token_ids", ids}});
  EXPECT_TRUE(std::regex_match(text, std::regex("( the| cat|the|cat| )*"))) << text;
}

TEST(StructuredOutput, WhatCannotBeIsRefusedByName) {
  const std::unique_ptr<ServerProcess> server = Served();
  ASSERT_NE(server, nullptr);
  const std::vector<std::pair<json, std::string>> refused = {
      {{{"guided_json", {{"not", json::object()}}}}, "'not'"},
      {{{"guided_regex", "(?=a)"}}, "looks ahead"},
      {{{"guided_regex", "a{99999}"}}, "65536 states"},
      {{{"guided_regex", "a"}, {"guided_choice", {"a"}}}, "'guided_regex' and 'guided_choice'"},
      {{{"grammar", "root ::= root"}}, "left-recursive"},
      {{{"response_format", {{"type", "xml"}}}}, "'json_object' and 'json_schema'"},
      {{{"guided_choice", {"a"}}, {"ignore_eos", true}}, "ignore_eos"},
      {{{"guided_choice", {"a"}}, {"use_beam_search", true}, {"n", 2}}, "'guided_choice'"},
      {{{"bad_words", {"a"}}, {"use_beam_search", true}, {"n", 2}}, "'bad_words'"}};
  for (const auto& [constraint, says] : refused) {
    const Result<HttpResponse> response =
        server->client().PostJson("/v1/completions", Body(constraint).dump());
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->status, 400) << constraint;
    EXPECT_THAT(response->body, HasSubstr(says)) << constraint;
  }
}

// The sequence starts again on the node that is left, with the state of its constraint.
TEST(StructuredOutput, GoesOnWhenAMemoryNodeIsKilled) {
  const std::unique_ptr<ServerProcess> server = Served();
  ASSERT_NE(server, nullptr);
  const json constraint = {{"guided_regex", "(\\([a-z ]{3,20}\\)|<[0-9]+>){80}"},
                           {"max_tokens", 300}};
  const std::string undisturbed = Streamed(*server, constraint);
  EXPECT_GT(undisturbed.size(), 200u);
  int num_events = 0;
  const std::string text = Streamed(*server, constraint, [&] {
    if (++num_events != 30) return;
    for (const char* node : {"m0", "m1"}) {
      const json nodes = server->Status()["nodes"];
      const auto holds = std::ranges::find_if(nodes, [&](const json& one) {
        return one["name"] == node && one.value("num_sequences", 0) > 0;
      });
      if (holds == nodes.end()) continue;
      EXPECT_EQ(kill(*server->DaemonOf(node), SIGKILL), 0);
      return;
    }
    ADD_FAILURE() << "no node holds the sequence";
  });
  EXPECT_EQ(text, undisturbed);
}

}  // namespace
}  // namespace lamina::testing
