// models/tiny-stories as GGUF files over memory nodes: the tokens and log-probabilities of a
// forward pass in double precision with the dequantized weights (tests/fixtures/gguf/make_gguf.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_golden.h"
#include "tests/support/gguf_models.h"
#include "tests/support/server_process.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

// Of log-probabilities. Dequantized weights are kept in fp16, which the golden run does not round
// to.
constexpr double kFp16Tolerance = 4e-3;

std::vector<Deployment> GgufDeployments() {
  Deployment plain;
  plain.kv_dtype = DType::kF32;
  std::vector<Deployment> all = {plain};
  Deployment ranks = plain;
  ranks.tensor_parallel_size = 2;
  ranks.kv_head_parallel = 2;
  all.push_back(ranks);
  Deployment stages = plain;
  stages.pipeline_parallel_size = 2;
  stages.num_memory_nodes = 1;
  all.push_back(stages);
  Deployment outside = plain;  // weights on a disk
  outside.offload = {.interval = 1, .folder = "/var/tmp", .buffers = 1};
  outside.num_batches = 1;
  all.push_back(outside);
  return all;
}

TEST(GgufTest, TokensAreThoseOfTheDequantizedWeights) {
  const TemporaryFolder folder;
  for (const GgufGolden& golden : GgufGoldens()) {
    const std::string path = folder / (golden.format + ".gguf");
    WriteTinyStories(golden.format, path);
    ASSERT_EQ(golden.prompts.size(), 8u);
    for (Deployment deployment : GgufDeployments()) {
      if (golden.format != "q4_k_m" && deployment.Name() != Deployment(GgufDeployments()[0]).Name())
        continue;
      SCOPED_TRACE(golden.format + " " + deployment.Name());
      deployment.model = path;
      const Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
      ASSERT_TRUE(serving.ok()) << serving.status();
      std::vector<Collector> collectors(golden.prompts.size());
      for (size_t i = 0; i < collectors.size(); ++i) {
        const GoldenPrompt& prompt = golden.prompts[i];
        ASSERT_TRUE(
            (*serving)
                ->engine
                ->Submit(GreedyRequest(prompt.prompt_ids, std::ssize(prompt.continuation_ids)),
                         collectors[i].sink())
                .ok());
      }
      for (size_t i = 0; i < collectors.size(); ++i) {
        ASSERT_TRUE(collectors[i].Wait(Deadline::After(std::chrono::seconds(60))));
        ExpectContinuation(golden.prompts[i], collectors[i].results()[0], kFp16Tolerance);
      }
    }
  }
}

// Two shards, over HTTP.
TEST(GgufTest, IsServedUnderTheNameOfItsFile) {
  const TemporaryFolder folder;
  const auto shard = [&](int i) {
    return folder / ("Tiny-Stories-Q8_0-0000" + std::to_string(i) + "-of-00002.gguf");
  };
  for (const int i : {1, 2}) {
    GgufWriter writer = i == 1 ? TinyStoriesKeys() : GgufWriter();
    writer.AddUint32("split.no", static_cast<uint32_t>(i - 1));
    writer.AddUint32("split.count", 2);
    writer.AddInt32("split.tensors.count", 39);
    AddTinyStoriesTensors("q8_0", writer, [&](const std::string& name) {
      return (name.starts_with("blk.2") || name.starts_with("blk.3")) == (i == 2);
    });
    WriteFile(shard(i), writer.File());
  }
  const auto server = ServerProcess::Start({shard(1), "--memory-nodes", "2"});
  ASSERT_TRUE(server.ok()) << server.status();
  const HttpClient client = (*server)->client();
  const auto models = nlohmann::json::parse(client.Get("/v1/models")->body);
  EXPECT_EQ(models["data"][0]["id"], "Tiny-Stories-Q8_0");
  const nlohmann::json ask = {
      {"model", "Tiny-Stories-Q8_0"}, {"max_tokens", 16}, {"temperature", 0}};
  nlohmann::json completion = ask, chat = ask;
  completion["prompt"] = "Once upon a time";
  chat["messages"] = {{{"role", "user"}, {"content", "Once upon a time"}}};
  const std::string text = ", in a garden, there lived a shy";
  const auto answer =
      nlohmann::json::parse(client.PostJson("/v1/completions", completion.dump())->body);
  ASSERT_TRUE(answer.contains("choices")) << answer;
  EXPECT_THAT(answer["choices"][0]["text"].get<std::string>(), ::testing::StartsWith(text));
  const auto said =
      nlohmann::json::parse(client.PostJson("/v1/chat/completions", chat.dump())->body);
  ASSERT_TRUE(said.contains("choices")) << said;
  EXPECT_THAT(said["choices"][0]["message"]["content"].get<std::string>(),
              ::testing::StartsWith(text));
}

TEST(GgufTest, CommandsSayWhatIsWrongWithAFile) {
  const TemporaryFolder folder;
  const auto says = [&](const std::string& command, const std::string& path) {
    std::vector<std::string> arguments = {command, path};
    if (command == "tokenize") arguments.emplace_back("text");
    const CommandOutput output = RunLamina(arguments);
    EXPECT_NE(output.exit_status, 0);
    EXPECT_THAT(output.err, ::testing::HasSubstr(path));
    return output.err;
  };
  const std::string path = folder / "m.gguf";
  for (const std::string command : {"serve", "split", "tokenize"}) {
    std::filesystem::remove(path);
    EXPECT_THAT(says(command, path), ::testing::HasSubstr("No such file"));
    WriteFile(path, "PK");
    EXPECT_THAT(says(command, path), ::testing::HasSubstr("not a GGUF file"));
  }
  GgufWriter writer;
  writer.AddString("general.architecture", "rwkv7");
  WriteFile(path, writer.File());
  EXPECT_THAT(says("serve", path), ::testing::HasSubstr("\"rwkv7\", expected one of llama, qwen2"));
}

}  // namespace
}  // namespace lamina::testing
