// The program `lamina` as its users meet it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "manager/process.h"
#include "tests/support/paths.h"
#include "tests/support/scripted_server.h"

namespace lamina {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

CommandOutput Lamina(std::vector<std::string> arguments, const std::string& before = "") {
  arguments.insert(arguments.begin(), BinPath("/lamina"));
  const Result<CommandOutput> output = RunCommand({"sh", "-c", before + ShellJoin(arguments)},
                                                  Deadline::After(std::chrono::seconds(30)));
  EXPECT_TRUE(output.ok()) << output.status();
  return output.ok() ? *output : CommandOutput();
}

// Answers as a server that has the model "m" and says "Hello" and " you" to everything.
class FakeApi {
 public:
  FakeApi() : server_([this](const std::string& request) { return Answer(request); }) {}

  std::string url() const { return server_.url(); }
  json last_body() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return last_body_;
  }
  std::string last_head() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return last_head_;
  }

 private:
  ScriptedAnswer Answer(const std::string& request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (request.starts_with("GET /v1/models "))
      return {ScriptedServer::Http(200, R"({"object":"list","data":[{"id":"m"}]})")};
    last_head_ = request.substr(0, request.find("\r\n\r\n"));
    last_body_ = json::parse(request.substr(last_head_.size() + 4));
    if (last_body_.contains("prompt") && last_body_["prompt"] == "refuse")
      return {ScriptedServer::Http(400, R"({"error":{"message":"no such thing"}})")};
    const bool is_chat = request.starts_with("POST /v1/chat/completions ");
    std::vector<std::string> chunks;
    // With a comment before each event, as in a stream that is silent.
    const auto add = [&chunks](const std::string& event) {
      chunks.push_back(": waiting\n\n");
      chunks.push_back(event);
    };
    for (const std::string text : {"Hello", " you"}) {
      const json choice = is_chat ? json{{"index", 0}, {"delta", {{"content", text}}}}
                                  : json{{"index", 0}, {"text", text}};
      add("data: " + json{{"choices", {choice}}}.dump() + "\n\n");
    }
    if (last_body_.contains("prompt") && last_body_["prompt"] == "break") {
      add("data: {\"error\":{\"message\":\"a node died\"}}\n\n");
    }
    add("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n");
    if (!last_body_.contains("prompt") || last_body_["prompt"] != "cut") add("data: [DONE]\n\n");
    return {ScriptedServer::Chunked(chunks)};
  }

  std::mutex mutex_;  // the server answers on its own thread
  json last_body_;
  std::string last_head_;
  ScriptedServer server_;
};

TEST(Cli, DoctorsPortsArePorts) {
  const CommandOutput output = Lamina({"doctor", "--port", "99999"});
  EXPECT_NE(output.exit_status, 0);
  EXPECT_THAT(output.err, HasSubstr("99999"));
  EXPECT_THAT(output.out, Not(HasSubstr("YAML")));
}

// UCX's own place for its messages is stdout.
TEST(Cli, DoctorsJsonIsAloneOnStdout) {
  const CommandOutput output =
      Lamina({"doctor", "--json"}, "UCX_LAMINA_TEST=1 UCX_LOG_LEVEL=info ");
  EXPECT_TRUE(json::parse(output.out, nullptr, false).is_object()) << output.out;
}

TEST(Cli, EveryCommandHasHelpWithAnExample) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{},
                                             {"serve"},
                                             {"pull"},
                                             {"models"},
                                             {"complete"},
                                             {"chat"},
                                             {"cluster"},
                                             {"cluster", "up"},
                                             {"cluster", "down"},
                                             {"cluster", "status"},
                                             {"split"},
                                             {"tokenize"},
                                             {"simulate"}}) {
    std::vector<std::string> arguments = command;
    arguments.push_back("--help");
    const CommandOutput output = Lamina(arguments);
    EXPECT_EQ(output.exit_status, 0) << ShellJoin(command);
    EXPECT_THAT(output.out, HasSubstr("Example")) << ShellJoin(command);
    EXPECT_THAT(output.out, HasSubstr("  lamina ")) << ShellJoin(command);
  }
}

TEST(Cli, UsageErrorsExitWithTwo) {
  const CommandOutput unknown = Lamina({"fly"});
  EXPECT_EQ(unknown.exit_status, 2);
  EXPECT_THAT(unknown.err,
              HasSubstr("unknown command 'fly'; commands: serve pull models front complete chat "
                        "cluster split tokenize doctor quantize perplexity pack bench"));
  EXPECT_THAT(Lamina({"sevre"}).err, HasSubstr("did you mean 'serve'?"));
  EXPECT_THAT(Lamina({"complete", "x", "--max-token", "3"}).err,
              HasSubstr("There is no --max-token; did you mean --max-tokens?"));
  EXPECT_THAT(Lamina({"cluster", "up", "x.yaml", "--dry-rum"}).err,
              HasSubstr("There is no --dry-rum"));
  EXPECT_THAT(Lamina({"serve", "x", "--gpu-memory-utilization", "0.9"}).err,
              HasSubstr("lamina serve: there is no --gpu-memory-utilization here: --memory"));
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {""},
                                             {"--fly"},
                                             {"complete"},
                                             {"complete", "x", "--fly"},
                                             {"complete", "x", "--max-tokens", "many"},
                                             {"cluster"},
                                             {"cluster", "up"},
                                             {"split"},
                                             {"tokenize"}}) {
    const CommandOutput output = Lamina(arguments);
    EXPECT_EQ(output.exit_status, 2) << ShellJoin(arguments);
    EXPECT_THAT(output.err, Not(IsEmpty())) << ShellJoin(arguments);
    EXPECT_THAT(output.out, IsEmpty()) << ShellJoin(arguments);
  }
}

TEST(Cli, Complete) {
  FakeApi api;
  const CommandOutput output =
      Lamina({"complete", "Once", "--url", api.url(), "--max-tokens", "9", "--temperature", "0",
              "--seed", "5", "--stop", "a", "--stop", "b", "--stats", "--api-key", "k"});
  EXPECT_EQ(output.exit_status, 0) << output.err;
  EXPECT_EQ(output.out, "Hello you\n");
  EXPECT_THAT(output.err, HasSubstr("3 prompt tokens, 2 output tokens"));
  EXPECT_THAT(api.last_head(), HasSubstr("Authorization: Bearer k"));
  EXPECT_EQ(
      api.last_body(),
      json::parse(
          R"({"model":"m","prompt":"Once","max_tokens":9,"temperature":0.0,"seed":5,"stop":["a","b"],"stream":true,
                                           "stream_options":{"include_usage":true}})"));
}

TEST(Cli, OptionsFromTheEnvironmentAndStdin) {
  FakeApi api;
  const CommandOutput output = Lamina(
      {"complete", "-", "--seed", "2"},
      "printf 'from stdin' | LAMINA_SEED=1 LAMINA_MAX_TOKENS=7 LAMINA_URL=" + api.url() + " ");
  EXPECT_EQ(output.exit_status, 0) << output.err;
  EXPECT_EQ(api.last_body()["prompt"], "from stdin");
  EXPECT_EQ(api.last_body()["max_tokens"], 7);
  EXPECT_EQ(api.last_body()["seed"], 2);
}

TEST(Cli, ErrorsOfTheServerAreErrors) {
  FakeApi api;
  const CommandOutput refused = Lamina({"complete", "refuse", "--url", api.url()});
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.err, HasSubstr("answered with status 400: no such thing"));
  const CommandOutput broken = Lamina({"complete", "break", "--url", api.url()});
  EXPECT_EQ(broken.exit_status, 1);
  EXPECT_EQ(broken.out, "Hello you\n");
  EXPECT_THAT(broken.err, HasSubstr("a node died"));
  const CommandOutput cut = Lamina({"complete", "cut", "--url", api.url()});
  EXPECT_EQ(cut.exit_status, 1);
  EXPECT_THAT(cut.err, HasSubstr("closed the stream before its end"));
}

TEST(Cli, NoServerSaysHowToStartOne) {
  const CommandOutput output = Lamina({"complete", "x", "--url", "http://127.0.0.1:1"});
  EXPECT_EQ(output.exit_status, 1);
  EXPECT_EQ(output.err,
            "lamina: cannot connect to 127.0.0.1:1: Connection refused; start a server with "
            "`lamina serve MODEL`, or name one with --url\n");
}

// A service that is named lamina, as its pods see it.
TEST(Cli, WhatKubernetesSetsIsNoPort) {
  const CommandOutput output = Lamina(
      {"serve", "/nonexistent"},
      "LAMINA_PORT=tcp://10.0.0.1:8000 LAMINA_SERVICE_HOST=10.0.0.1 LAMINA_SERVICE_PORT=8000 "
      "LAMINA_PORT_8000_TCP=tcp://10.0.0.1:8000 ");
  EXPECT_EQ(output.exit_status, 1) << output.err;
  EXPECT_THAT(output.err, HasSubstr("LAMINA_PORT=tcp://10.0.0.1:8000 is not taken"));
  EXPECT_THAT(output.err, HasSubstr("/nonexistent"));
  EXPECT_EQ(Lamina({"serve", "/nonexistent"}, "LAMINA_PORT=many ").exit_status, 2);
}

TEST(Cli, ChatKeepsTheHistory) {
  FakeApi api;
  const CommandOutput output =
      Lamina({"chat", "--system", "Be short.", "--url", api.url()}, "printf 'one\\ntwo\\n' | ");
  EXPECT_EQ(output.exit_status, 0) << output.err;
  EXPECT_EQ(output.out, "Hello you\nHello you\n");
  EXPECT_EQ(api.last_body()["messages"],
            json::parse(R"([{"role":"system","content":"Be short."},{"role":"user","content":"one"},
                                                       {"role":"assistant","content":"Hello you"},{"role":"user","content":"two"}])"));
}

TEST(Cli, Split) {
  const CommandOutput text = Lamina({"split", SourcePath("/models/tiny-stories")});
  EXPECT_EQ(text.exit_status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("5 slices"));
  const CommandOutput as_json = Lamina({"split", SourcePath("/models/tiny-stories"), "--json"});
  EXPECT_EQ(json::parse(as_json.out, nullptr, false)["slices"].size(), 5u) << as_json.out;
  const CommandOutput missing = Lamina({"split", "/nonexistent"});
  EXPECT_EQ(missing.exit_status, 1);
  EXPECT_THAT(missing.err, HasSubstr("/nonexistent"));
}

TEST(Cli, Tokenize) {
  const std::string model = SourcePath("/models/tiny-stories");
  const CommandOutput text = Lamina({"tokenize", model, "Once upon"});
  EXPECT_EQ(text.exit_status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("       1  \"<s>\"\n"));
  EXPECT_THAT(text.out, HasSubstr(" tokens, 9 bytes\n"));
  const json ids =
      json::parse(Lamina({"tokenize", model, "Once upon", "--json"}).out, nullptr, false);
  const json bare =
      json::parse(Lamina({"tokenize", model, "Once upon", "--json", "--no-special-tokens"}).out,
                  nullptr, false);
  EXPECT_EQ(ids.size(), bare.size() + 1);
  EXPECT_EQ(Lamina({"tokenize", "/nonexistent", "x"}).exit_status, 1);
}

TEST(Cli, ClusterErrorsNameFileAndLine) {
  const CommandOutput missing = Lamina({"cluster", "up", "--config", "/nonexistent.yaml"});
  EXPECT_EQ(missing.exit_status, 1);
  EXPECT_EQ(missing.err, "lamina: /nonexistent.yaml: no such file\n");
  const CommandOutput dry =
      Lamina({"cluster", "up", "--dry-run", "--config", SourcePath("/configs/local.yaml")});
  EXPECT_EQ(dry.exit_status, 0) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr(BinPath("/lamina-memory-node") +
                                 " --name m1 --listen 127.0.0.1:7102 --memory 256MiB --threads 1"));
}

}  // namespace
}  // namespace lamina
