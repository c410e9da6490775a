// The shipped model's golden continuations, made with PyTorch: token for token and log-probability for log-probability, in every set-up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/serving.h"

namespace lamina::testing {
namespace {

constexpr double kLogprobTolerance = 1e-3;

struct Golden {
  std::string text;
  std::vector<TokenId> prompt, continuation;
  std::vector<double> logprobs;
  bool ends = false;
};

std::vector<Golden> LoadGolden(const std::string& kv_dtype) {
  std::ifstream file(std::string(LAMINA_SOURCE_DIR "/models/tiny-stories/") +
                     (kv_dtype == "float32" ? "golden.json" : "golden_bf16kv.json"));
  const nlohmann::json json = nlohmann::json::parse(file);
  std::vector<Golden> golden;
  for (const auto& entry : json["prompts"]) {
    Golden g;
    g.text = entry["prompt"];
    g.prompt = entry["prompt_ids"].get<std::vector<TokenId>>();
    g.continuation = entry["continuation_ids"].get<std::vector<TokenId>>();
    for (const auto& step : entry["steps"]) g.logprobs.push_back(step["logprob"]);
    g.ends = entry["finish_reason"] == "stop";
    golden.push_back(std::move(g));
  }
  return golden;
}

void ExpectGolden(const Golden& golden, const Generated& got) {
  SCOPED_TRACE("prompt: " + golden.text);
  ASSERT_TRUE(got.finished);
  ASSERT_TRUE(got.error.ok()) << got.error;
  EXPECT_EQ(got.tokens, golden.continuation);
  EXPECT_EQ(got.reason, golden.ends ? FinishReason::kStop : FinishReason::kLength);
  ASSERT_EQ(got.logprobs.size(), golden.logprobs.size());
  for (size_t i = 0; i < golden.logprobs.size(); ++i) EXPECT_NEAR(got.logprobs[i], golden.logprobs[i], kLogprobTolerance) << "token " << i;
}

class GoldenTest : public ::testing::TestWithParam<Deployment> {};

TEST_P(GoldenTest, EachPromptAloneAndAllAtOnce) {
  const std::vector<Golden> golden = LoadGolden(GetParam().kv_dtype);
  ASSERT_EQ(golden.size(), 19u);
  Result<std::unique_ptr<Serving>> serving = Serving::Create(GetParam());
  ASSERT_TRUE(serving.ok()) << serving.status();
  Engine& engine = *(*serving)->engine;
  for (const Golden& g : golden) {
    const Collector collector;
    ASSERT_TRUE(engine.Submit(GreedyRequest(g.prompt, 96), collector.sink()).ok());
    ASSERT_TRUE(collector.Wait(Deadline::After(std::chrono::seconds(60))));
    ExpectGolden(g, collector.results()[0]);
  }
  std::vector<Collector> collectors(golden.size());
  for (size_t i = 0; i < golden.size(); ++i) ASSERT_TRUE(engine.Submit(GreedyRequest(golden[i].prompt, 96), collectors[i].sink()).ok());
  for (size_t i = 0; i < golden.size(); ++i) {
    ASSERT_TRUE(collectors[i].Wait(Deadline::After(std::chrono::seconds(60))));
    ExpectGolden(golden[i], collectors[i].results()[0]);
  }
  EXPECT_EQ(AwaitNoTokens(engine, Deadline::After(std::chrono::seconds(10))), "");
}

// Little room: requests are preempted and recomputed, and chunks of prompts are short. The text must not change.
TEST_P(GoldenTest, UnderPreemptionAndShortChunks) {
  const std::vector<Golden> golden = LoadGolden(GetParam().kv_dtype);
  Deployment deployment = GetParam();
  const int64_t bytes_per_token = int64_t{2} * 4 * 4 * 32 * (deployment.kv_dtype == "float32" ? 4 : 2);
  deployment.memory_bytes = bytes_per_token * 240;
  deployment.max_num_seqs = 8;
  deployment.max_num_batched_tokens = 11;
  Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
  ASSERT_TRUE(serving.ok()) << serving.status();
  Engine& engine = *(*serving)->engine;
  std::vector<Collector> collectors(golden.size());
  for (size_t i = 0; i < golden.size(); ++i) ASSERT_TRUE(engine.Submit(GreedyRequest(golden[i].prompt, 96), collectors[i].sink()).ok());
  for (size_t i = 0; i < golden.size(); ++i) {
    ASSERT_TRUE(collectors[i].Wait(Deadline::After(std::chrono::seconds(60))));
    ExpectGolden(golden[i], collectors[i].results()[0]);
  }
  EXPECT_GT(engine.status().scheduler.num_preemptions, 0);
  EXPECT_EQ(AwaitNoTokens(engine, Deadline::After(std::chrono::seconds(10))), "");
}

std::vector<Deployment> AllDeployments() {
  std::vector<Deployment> all;
  for (const char* kv_dtype : {"float32", "bfloat16"}) {
    Deployment deployment;
    deployment.kv_dtype = kv_dtype;
    deployment.kind = "in-process";
    all.push_back(deployment);
    deployment.kind = "cluster";
    deployment.num_memory_nodes = 0;
    all.push_back(deployment);
    for (const char* transport : {"tcp", "shm"}) {
      for (const int num_memory_nodes : {1, 2, 3}) {
        deployment.transport = transport;
        deployment.num_memory_nodes = num_memory_nodes;
        all.push_back(deployment);
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Deployments, GoldenTest, ::testing::ValuesIn(AllDeployments()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace lamina::testing
