// From a name to a served model: `lamina pull` from a hub on the loopback, `lamina models`, and
// `lamina serve` by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/text_file.h"
#include "tests/support/free_port.h"
#include "tests/support/gguf_models.h"
#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/test_hub.h"

namespace lamina::testing {
namespace pull_test {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class PullCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("HF_HUB_CACHE", cache().c_str(), 1);
    setenv("HF_HOME", (folder_ / "home").c_str(), 1);
    setenv("HF_ENDPOINT", hub_.url().c_str(), 1);
    // OpenSSL's own variable, as people set it for a company's CA.
    setenv("SSL_CERT_FILE", hub_.ca().c_str(), 1);
    for (const char* name : {"HF_TOKEN", "HF_HUB_OFFLINE"}) unsetenv(name);
  }
  void TearDown() override {
    for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "HF_ENDPOINT", "SSL_CERT_FILE"})
      unsetenv(name);
  }

  std::string cache() const { return folder_ / "cache"; }
  void AddTinyStories() {
    for (const std::string name : {"config.json", "generation_config.json", "tokenizer.model",
                                   "tokenizer_config.json", "model.safetensors"}) {
      hub_.files[name] = {ReadTextFile(SourcePath("/models/tiny-stories/" + name)).value(),
                          /*is_large=*/name == "model.safetensors" || name == "tokenizer.model"};
    }
    hub_.files["README.md"] = {"A model."};
  }

  const TemporaryFolder folder_;
  TestHub hub_{"lamina/tiny-stories"};
};

TEST_F(PullCommand, WhatWasPulledIsServedByName) {
  AddTinyStories();
  const CommandOutput before = RunLamina({"serve", "lamina/tiny-stories", "--once"});
  EXPECT_EQ(before.exit_status, 1);
  EXPECT_THAT(before.err, HasSubstr("lamina pull lamina/tiny-stories"));

  const CommandOutput pulled = RunLamina({"pull", "lamina/tiny-stories"});
  ASSERT_EQ(pulled.exit_status, 0) << pulled.err;
  EXPECT_THAT(pulled.out, AllOf(HasSubstr("5 files"), HasSubstr("lamina serve lamina/tiny-stories"),
                                HasSubstr(cache())));

  const Result<std::unique_ptr<ServerProcess>> server =
      ServerProcess::Start({"lamina/tiny-stories", "--memory", "16MiB", "--kv-dtype", "float32"});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT((*server)->output(), HasSubstr("lamina/tiny-stories: LlamaForCausalLM"));
  const HttpClient client = (*server)->client();
  const json models = json::parse(client.Get("/v1/models")->body);
  EXPECT_EQ(models["data"][0]["id"], "lamina/tiny-stories");
  EXPECT_EQ(client.Get("/v1/models/lamina/tiny-stories")->status, 200);
  const json golden =
      json::parse(ReadTextFile(SourcePath("/models/tiny-stories/golden.json")).value());
  const json& expected = golden["prompts"][0];
  const json request = {{"model", "lamina/tiny-stories"},
                        {"prompt", expected["prompt_ids"]},
                        {"max_tokens", 16},
                        {"temperature", 0},
                        {"return_token_ids", true}};
  const Result<HttpResponse> answer = client.PostJson("/v1/completions", request.dump());
  ASSERT_TRUE(answer.ok() && answer->ok()) << answer->body;
  std::vector<int> tokens = expected["continuation_ids"];
  tokens.resize(16);
  EXPECT_EQ(json::parse(answer->body)["choices"][0]["token_ids"], tokens) << answer->body;
}

TEST_F(PullCommand, EveryCommandTakesAName) {
  AddTinyStories();
  ASSERT_EQ(RunLamina({"pull", "lamina/tiny-stories"}).exit_status, 0);
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"split", "lamina/tiny-stories"},
           {"tokenize", "lamina/tiny-stories@main", "Once upon a time"},
           {"plan", "lamina/tiny-stories", "--input-len", "64", "--output-len", "64"},
           {"quantize", "lamina/tiny-stories", "--to", "w8", "--out", folder_ / "w8"}}) {
    const CommandOutput output = RunLamina(command);
    EXPECT_EQ(output.exit_status, 0) << command[0] << ": " << output.err;
  }
}

TEST_F(PullCommand, AClusterFileTakesAName) {
  setenv("XDG_STATE_HOME", (folder_ / "state").c_str(), 1);
  const std::string config = folder_ / "cluster.yaml", port = std::to_string(FreePort());
  WriteFile(config,
            "version: 1\ncluster: {http_port: " + port +
                "}\nnodes:\n  - {name: c0, role: compute, port: " + std::to_string(FreePort()) +
                "}\n  - {name: m0, role: memory, port: " + std::to_string(FreePort()) +
                ", memory: 16MiB, threads: 1}\nmodel: {path: lamina/tiny-stories}\n");
  const CommandOutput before = RunLamina({"serve", "--cluster", config});
  EXPECT_EQ(before.exit_status, 1);
  EXPECT_THAT(before.err, HasSubstr("lamina pull lamina/tiny-stories"));

  AddTinyStories();
  ASSERT_EQ(RunLamina({"pull", "lamina/tiny-stories"}).exit_status, 0);
  const CommandOutput up = RunLamina({"cluster", "up", config});
  EXPECT_EQ(up.exit_status, 0) << up.out << up.err;
  const CommandOutput answer =
      RunLamina({"complete", "Once upon a time", "--max-tokens", "4", "--model",
                 "lamina/tiny-stories", "--url", "http://127.0.0.1:" + port});
  EXPECT_EQ(answer.exit_status, 0) << answer.err;
  EXPECT_EQ(RunLamina({"cluster", "down", config}).exit_status, 0);
  unsetenv("XDG_STATE_HOME");
}

TEST_F(PullCommand, ModelsAreListedWithWhatIsRefused) {
  AddTinyStories();
  ASSERT_EQ(RunLamina({"pull", "lamina/tiny-stories"}).exit_status, 0);
  const std::string other = cache() + "/models--org--other";
  const std::string snapshot = other + "/snapshots/" + kHubCommit;
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_directories(other + "/refs");
  WriteFile(other + "/refs/main", kHubCommit);
  WriteFile(snapshot + "/config.json", R"({"architectures": ["BertModel"], "model_type": "bert"})");

  const CommandOutput listed = RunLamina({"models", "--json"});
  ASSERT_EQ(listed.exit_status, 0) << listed.err;
  const json list = json::parse(listed.out);
  ASSERT_EQ(list["models"].size(), 2u);
  const json& good = list["models"][0];
  EXPECT_EQ(good["name"], "lamina/tiny-stories");
  EXPECT_EQ(good["commit"], kHubCommit);
  EXPECT_EQ(good["architecture"], "LlamaForCausalLM");
  EXPECT_EQ(good["servable"], true);
  EXPECT_EQ(good["weight_bytes"], 6562384);
  const json& refused = list["models"][1];
  EXPECT_EQ(refused["name"], "org/other");
  EXPECT_EQ(refused["servable"], false);
  EXPECT_THAT(refused["reason"].get<std::string>(), HasSubstr("BertModel"));

  const CommandOutput table = RunLamina({"models"});
  EXPECT_THAT(table.out, AllOf(HasSubstr("lamina/tiny-stories"), HasSubstr("cannot be served")));
}

// What it says of a tokenizer is whether there is one: reading those of many models takes long.
TEST_F(PullCommand, ModelsAreListedWithoutReadingTheirTokenizers) {
  for (const char* name : {"broken", "silent"}) {
    const std::string folder = cache() + "/models--org--" + name;
    const std::string snapshot = folder + "/snapshots/" + kHubCommit;
    std::filesystem::create_directories(snapshot);
    std::filesystem::create_directories(folder + "/refs");
    WriteFile(folder + "/refs/main", kHubCommit);
    for (const char* file : {"config.json", "model.safetensors"})
      std::filesystem::copy_file(SourcePath(std::string("/models/tiny-stories/") + file),
                                 snapshot + "/" + file);
    if (std::string(name) == "broken") WriteFile(snapshot + "/tokenizer.json", "{");
  }
  const CommandOutput listed = RunLamina({"models", "--json"});
  ASSERT_EQ(listed.exit_status, 0) << listed.err;
  const json list = json::parse(listed.out);
  ASSERT_EQ(list["models"].size(), 2u);
  EXPECT_EQ(list["models"][0]["servable"], true);
  EXPECT_EQ(list["models"][1]["servable"], false);
  EXPECT_THAT(list["models"][1]["reason"].get<std::string>(),
              HasSubstr("there is no tokenizer.json or tokenizer.model in this folder"));
  const CommandOutput served = RunLamina({"serve", "org/broken", "--once"});
  EXPECT_EQ(served.exit_status, 1);
  EXPECT_THAT(served.err, HasSubstr("tokenizer.json"));
}

TEST_F(PullCommand, OneGgufFileOfSeveral) {
  const std::string path = folder_ / "tiny-Q8_0.gguf";
  WriteTinyStories("q8_0", path);
  hub_.files["tiny-Q8_0.gguf"] = {ReadTextFile(path).value(), true};
  hub_.files["tiny-Q4_K_M.gguf"] = {"another", true};
  const CommandOutput several = RunLamina({"pull", "lamina/tiny-stories"});
  EXPECT_EQ(several.exit_status, 1);
  EXPECT_THAT(several.err, HasSubstr("Q4_K_M, Q8_0"));
  const CommandOutput pulled = RunLamina({"pull", "lamina/tiny-stories:Q8_0"});
  ASSERT_EQ(pulled.exit_status, 0) << pulled.err;
  const CommandOutput answer =
      RunLamina({"serve", "lamina/tiny-stories:q8_0", "--port", "0", "--memory", "16MiB",
                 "--prompt", "Once upon a time", "--max-tokens", "4", "--once"});
  EXPECT_EQ(answer.exit_status, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("Once upon a time"));
}

TEST_F(PullCommand, SaysWhatIsWrong) {
  const CommandOutput no_name = RunLamina({"pull", "tiny"});
  EXPECT_EQ(no_name.exit_status, 1);
  EXPECT_THAT(no_name.err, HasSubstr("Qwen/Qwen3-0.6B"));
  const CommandOutput unknown = RunLamina({"pull", "no/such"});
  EXPECT_EQ(unknown.exit_status, 1);
  EXPECT_THAT(unknown.err, HasSubstr("no/such"));
  const CommandOutput plain = RunLamina({"pull", "no/such", "--hub", "http://127.0.0.1:1"});
  EXPECT_THAT(plain.err, HasSubstr("https://"));
  setenv("HF_HUB_OFFLINE", "1", 1);
  EXPECT_THAT(RunLamina({"pull", "no/such"}).err, HasSubstr("HF_HUB_OFFLINE"));
  unsetenv("HF_HUB_OFFLINE");
}

}  // namespace pull_test
}  // namespace lamina::testing
