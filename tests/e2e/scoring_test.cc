// Log-probabilities of prompts against those of transformers
// (tests/fixtures/scoring/make_prompt_logprobs.py), in every way in which nodes share the work, and
// while nodes are lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "manager/resolve_config.h"
#include "model/model_config.h"
#include "tests/support/serving.h"

namespace lamina::testing {
namespace scoring_test {

using nlohmann::json;
using std::chrono::seconds;

constexpr double kTolerance = 1e-3;
constexpr int kNumTop = 5;

struct ScoredPrompt {
  std::vector<TokenId> ids;
  json tokens;  // of all but the first
};

std::vector<ScoredPrompt> GoldenScores() {
  std::ifstream file(SourcePath("/tests/fixtures/scoring/prompt_logprobs.json"));
  std::vector<ScoredPrompt> prompts;
  const json golden = json::parse(file);
  for (const json& entry : golden["prompts"]) prompts.push_back({entry["ids"], entry["tokens"]});
  return prompts;
}

GenerateRequest Scoring(const ScoredPrompt& prompt, int64_t max_new_tokens = 1) {
  GenerateRequest request = GreedyRequest(prompt.ids, max_new_tokens);
  request.ignore_eos = true;
  request.sampling.num_prompt_logprobs = kNumTop;
  return request;
}

void ExpectScores(const ScoredPrompt& prompt, const Generated& got) {
  ASSERT_TRUE(got.finished);
  ASSERT_TRUE(got.error.ok()) << got.error;
  ASSERT_EQ(got.scored.size(), prompt.tokens.size());
  for (size_t i = 0; i < got.scored.size(); ++i) {
    SCOPED_TRACE("token " + std::to_string(i + 1));
    const TokenScore& score = got.scored[i];
    const json& golden = prompt.tokens[i];
    EXPECT_EQ(score.token, golden["token"]);
    EXPECT_NEAR(score.logprob, golden["logprob"].get<double>(), kTolerance);
    if (!golden["rank"].is_null()) {
      EXPECT_EQ(score.rank, golden["rank"]);
    }
    ASSERT_EQ(score.top.size(), golden["top"].size());
    for (size_t k = 0; k < score.top.size(); ++k) {
      EXPECT_NEAR(score.top[k].logprob, golden["top"][k][1].get<double>(), kTolerance);
      if (!golden["top"][k][0].is_null()) {
        EXPECT_EQ(score.top[k].token, golden["top"][k][0]);
      }
    }
  }
}

// All at once.
void ExpectAllScores(Engine& engine, const std::vector<ScoredPrompt>& prompts,
                     int64_t max_new_tokens = 1) {
  std::vector<Collector> collectors(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i)
    ASSERT_TRUE(engine.Submit(Scoring(prompts[i], max_new_tokens), collectors[i].sink()).ok());
  for (size_t i = 0; i < prompts.size(); ++i) {
    SCOPED_TRACE("prompt " + std::to_string(i));
    ASSERT_TRUE(collectors[i].Wait(Deadline::After(seconds(60))));
    ExpectScores(prompts[i], collectors[i].results()[0]);
  }
}

class ScoringTest : public ::testing::TestWithParam<Deployment> {};

TEST_P(ScoringTest, IsThatOfTransformersOnceAndAgain) {
  Result<std::unique_ptr<Serving>> serving = Serving::Create(GetParam());
  ASSERT_TRUE(serving.ok()) << serving.status();
  Engine& engine = *(*serving)->engine;
  const std::vector<ScoredPrompt> prompts = GoldenScores();
  ExpectAllScores(engine, prompts, 4);
  ExpectAllScores(engine, prompts, 4);
  EXPECT_EQ(engine.status().scheduler.num_shared_tokens, 0) << "all of it was computed";
  EXPECT_EQ(AwaitNoTokens(engine, Deadline::After(seconds(10))), "");
}

// What lies on several nodes is not shared.
class ScoringWithSharing : public ScoringTest {};

TEST_P(ScoringWithSharing, OthersShareWhatAScoredPromptHasComputed) {
  Result<std::unique_ptr<Serving>> serving = Serving::Create(GetParam());
  ASSERT_TRUE(serving.ok()) << serving.status();
  Engine& engine = *(*serving)->engine;
  const ScoredPrompt prompt = GoldenScores().at(2);
  GenerateRequest several = Scoring(prompt, 4);
  several.n = 3;
  const Collector collector(3);
  ASSERT_TRUE(engine.Submit(several, collector.sink()).ok());
  ASSERT_TRUE(collector.Wait(Deadline::After(seconds(60))));
  ExpectScores(prompt, collector.results()[0]);
  for (const Generated& one : collector.results())
    EXPECT_EQ(one.tokens, collector.results()[0].tokens);
  EXPECT_EQ(engine.status().scheduler.num_shared_tokens, 2 * (std::ssize(prompt.ids) - 1));
}

class ScoringWithLittleRoom : public ScoringTest {};

// Prompts are computed again, with what was generated, in small chunks.
TEST_P(ScoringWithLittleRoom, UnderPreemptionAndShortChunks) {
  Deployment deployment = GetParam();
  const ModelConfig model = *ModelConfig::Load(deployment.model);
  const int64_t shares = std::max(deployment.kv_head_parallel, deployment.tensor_parallel_size);
  deployment.num_memory_nodes = static_cast<int>(shares);
  deployment.memory_bytes = KvBytesPerToken(model, deployment.kv_dtype) * 380 / shares;
  deployment.max_num_seqs = 8;
  deployment.max_num_batched_tokens = 11;
  Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
  ASSERT_TRUE(serving.ok()) << serving.status();
  Engine& engine = *(*serving)->engine;
  std::vector<ScoredPrompt> prompts = GoldenScores();
  for (int i = 0; i < 4; ++i) prompts.insert(prompts.begin(), prompts[static_cast<size_t>(i)]);
  ExpectAllScores(engine, prompts, 40);
  EXPECT_GT(engine.status().scheduler.num_preemptions, 0);
  EXPECT_EQ(AwaitNoTokens(engine, Deadline::After(seconds(10))), "");
}

std::vector<Deployment> Deployments() {
  std::vector<Deployment> all(9);
  for (Deployment& deployment : all) {
    deployment.kv_dtype = DType::kF32;
    deployment.max_num_batched_tokens = 32;
  }
  all[1].kind = "in-process";
  all[2].num_memory_nodes = 0;
  all[3].kv_head_parallel = 2;
  all[4].spread_tokens = 16;
  all[5].pipeline_parallel_size = 2;
  all[6].tensor_parallel_size = 2;
  all[7].num_compute_nodes = 2;
  all[7].pipeline = PipelineMode::kRotational;
  all[8].overlap = Switch::kOn;
  all[8].num_batches = 2;
  all[8].pipeline = PipelineMode::kFixed;
  return all;
}

std::vector<Deployment> NotSpread() {
  std::vector<Deployment> some = Deployments();
  std::erase_if(some, [](const Deployment& one) { return one.spread_tokens > 0; });
  return some;
}

std::vector<Deployment> NotSpreadOverMemoryNodes() {
  std::vector<Deployment> some = NotSpread();
  std::erase_if(some, [](const Deployment& one) { return one.num_memory_nodes == 0; });
  return some;
}

std::string NameOf(const ::testing::TestParamInfo<Deployment>& info) { return info.param.Name(); }

INSTANTIATE_TEST_SUITE_P(Deployments, ScoringTest, ::testing::ValuesIn(Deployments()), NameOf);
INSTANTIATE_TEST_SUITE_P(Deployments, ScoringWithSharing, ::testing::ValuesIn(NotSpread()), NameOf);
INSTANTIATE_TEST_SUITE_P(Deployments, ScoringWithLittleRoom,
                         ::testing::ValuesIn(NotSpreadOverMemoryNodes()), NameOf);

// The longest prompt several times, a few tokens in a step, so that there is time to harm nodes.
class ScoringRecovery : public ::testing::Test {
 protected:
  ScoringRecovery() {
    deployment_.kv_dtype = DType::kF32;
    deployment_.max_num_seqs = deployment_.max_num_batched_tokens = 2;
    prompts_.assign(6, GoldenScores().back());
  }
  void Submit(Engine& engine) {
    collectors_.resize(prompts_.size());
    for (size_t i = 0; i < prompts_.size(); ++i)
      ASSERT_TRUE(engine.Submit(Scoring(prompts_[i]), collectors_[i].sink()).ok());
  }
  // Waits until so many tokens of a request's prompt have been told.
  bool AwaitScores(size_t request, size_t count) {
    return AwaitTrue([&] { return collectors_[request].results()[0].scored.size() >= count; },
                     Deadline::After(seconds(30)));
  }
  void ExpectWhole() {
    for (size_t i = 0; i < prompts_.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i));
      ASSERT_TRUE(collectors_[i].Wait(Deadline::After(seconds(60))));
      ExpectScores(prompts_[i], collectors_[i].results()[0]);
    }
  }

  Deployment deployment_;
  std::vector<ScoredPrompt> prompts_;
  std::vector<Collector> collectors_;
};

TEST_F(ScoringRecovery, MemoryNodesThatAreLostWhileTheyArePrefilledRepeatNothing) {
  deployment_.num_memory_nodes = 3;
  Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment_);
  ASSERT_TRUE(serving.ok()) << serving.status();
  Submit(*(*serving)->engine);
  const std::vector<std::string> victims = {"m0", "m1"};
  for (size_t i = 0; i < victims.size(); ++i) {
    ASSERT_TRUE(AwaitScores(i, 20));
    ASSERT_TRUE((*serving)->cluster->Kill(victims[i], SIGKILL).ok());
  }
  EXPECT_FALSE(collectors_.back().results()[0].finished) << "it was harmed too late";
  ExpectWhole();
}

TEST_F(ScoringRecovery, TheNextManagerGoesOnWithWhatIsMissing) {
  Result<std::unique_ptr<Serving>> serving = Serving::CreateWithManager(deployment_);
  ASSERT_TRUE(serving.ok()) << serving.status();
  Submit(*(*serving)->engine);
  ASSERT_TRUE(AwaitScores(1, 20));
  ManagerProcess& manager = *(*serving)->manager;
  manager.Send(SIGKILL);
  manager.AwaitEnd(Deadline::After(seconds(10)));
  EXPECT_FALSE(collectors_.back().results()[0].finished) << "it was harmed too late";
  const Status started = manager.Start();
  ASSERT_TRUE(started.ok()) << started;
  ExpectWhole();
}

}  // namespace scoring_test
}  // namespace lamina::testing
