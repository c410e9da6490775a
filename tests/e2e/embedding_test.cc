// Embeddings of prompts against the hidden states of transformers
// (tests/fixtures/embedding/make_embeddings.py), in every way in which nodes share the work, beside
// requests that generate, and while nodes are lost; and the same bits in all of these.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "manager/resolve_config.h"
#include "model/model_config.h"
#include "tests/support/families.h"
#include "tests/support/serving.h"

namespace lamina::testing {
namespace embedding_test {

using nlohmann::json;
using std::chrono::seconds;

constexpr double kOfUnitLength = 1e-3;  // each value of a vector of length 1
constexpr double kCosine = 2e-3;

struct Embedded {
  std::vector<TokenId> ids;
  std::vector<double> values;
};

Embedded ReadEmbedded(const json& entry) { return {entry["ids"], entry["values"]}; }

json Golden() {
  std::ifstream file(SourcePath("/tests/fixtures/embedding/embeddings.json"));
  return json::parse(file);
}

std::vector<Embedded> StoryPrompts() {
  std::vector<Embedded> prompts;
  const json golden = Golden();
  for (const json& entry : golden["tiny-stories"]) prompts.push_back(ReadEmbedded(entry));
  return prompts;
}

GenerateRequest Embedding(const std::vector<TokenId>& prompt) {
  GenerateRequest request;
  request.prompt = prompt;
  request.max_new_tokens = 1;
  request.sampling.embeds = true;
  return request;
}

template <typename Value>
double Length(const std::vector<Value>& values) {
  double sum = 0;
  for (const Value value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

void ExpectEmbedding(const Embedded& golden, const Generated& got) {
  ASSERT_TRUE(got.finished);
  ASSERT_TRUE(got.error.ok()) << got.error;
  EXPECT_EQ(got.reason, FinishReason::kStop);
  EXPECT_TRUE(got.tokens.empty()) << "no token is chosen";
  ASSERT_EQ(got.embedding.size(), golden.values.size());
  const double length = Length(golden.values), own_length = Length(got.embedding);
  EXPECT_NEAR(own_length / length, 1, 1e-3) << "the state itself is told";
  double cosine = 0;
  for (size_t i = 0; i < golden.values.size(); ++i) {
    const double expected = golden.values[i] / length;
    const double value = static_cast<double>(got.embedding[i]) / own_length;
    EXPECT_NEAR(value, expected, kOfUnitLength) << "value " << i;
    cosine += value * expected;
  }
  EXPECT_NEAR(cosine, 1, kCosine);
}

Generated Await(const Collector& collector) {
  EXPECT_TRUE(collector.Wait(Deadline::After(seconds(60))));
  return collector.results()[0];
}

// All at once.
std::vector<Generated> EmbedAll(Engine& engine, const std::vector<Embedded>& prompts) {
  std::vector<Collector> collectors(prompts.size());
  std::vector<Generated> results;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto submitted = engine.Submit(Embedding(prompts[i].ids), collectors[i].sink());
    EXPECT_TRUE(submitted.ok()) << submitted.status();
    if (!submitted.ok()) return results;
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    SCOPED_TRACE("prompt " + std::to_string(i));
    results.push_back(Await(collectors[i]));
    ExpectEmbedding(prompts[i], results.back());
  }
  return results;
}

class EmbeddingTest : public ::testing::TestWithParam<Deployment> {};

TEST_P(EmbeddingTest, IsThatOfTransformersAndTheSameAloneAndBesideTexts) {
  Result<std::unique_ptr<Serving>> serving = Serving::Create(GetParam());
  ASSERT_TRUE(serving.ok()) << serving.status();
  Engine& engine = *(*serving)->engine;
  const std::vector<Embedded> prompts = StoryPrompts();
  std::vector<Generated> alone;
  for (const Embedded& prompt : prompts) alone.push_back(EmbedAll(engine, {prompt}).at(0));
  EXPECT_EQ(AwaitNoTokens(engine, Deadline::After(seconds(10))), "");
  std::vector<Collector> texts(3);
  std::vector<Generated> texts_alone;
  const auto story = [&](size_t i) { return GreedyRequest(prompts[i + 1].ids, 30); };
  for (size_t i = 0; i < texts.size(); ++i) {
    const Collector collector;
    ASSERT_TRUE(engine.Submit(story(i), collector.sink()).ok());
    texts_alone.push_back(Await(collector));
    ASSERT_TRUE(engine.Submit(story(i), texts[i].sink()).ok());
  }
  const std::vector<Generated> together = EmbedAll(engine, prompts);
  ASSERT_EQ(together.size(), prompts.size());
  // Both give up the last bits: by what was cached, and by how full the nodes are.
  const bool gives_up = GetParam().overlap == Switch::kOn || GetParam().spread_tokens > 0;
  const float most = gives_up ? 1e-4f : 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    SCOPED_TRACE("prompt " + std::to_string(i));
    for (size_t k = 0; k < alone[i].embedding.size(); ++k)
      ASSERT_NEAR(together[i].embedding[k], alone[i].embedding[k], most) << "value " << k;
  }
  for (size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(Await(texts[i]).tokens, texts_alone[i].tokens) << "text " << i;
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

std::string NameOf(const ::testing::TestParamInfo<Deployment>& info) { return info.param.Name(); }

INSTANTIATE_TEST_SUITE_P(Deployments, EmbeddingTest, ::testing::ValuesIn(Deployments()), NameOf);

// A prompt whose beginning is cached, and one that is cached as a whole.
TEST(EmbeddingOfCachedPrompts, ComputesItsLastRowAgain) {
  Deployment deployment;
  deployment.kv_dtype = DType::kF32;
  Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
  ASSERT_TRUE(serving.ok()) << serving.status();
  Engine& engine = *(*serving)->engine;
  const Embedded prompt = StoryPrompts().at(2);
  const Generated first = EmbedAll(engine, {prompt}).at(0);
  const Collector text;  // decode rows show that the KV is there
  ASSERT_TRUE(engine.Submit(GreedyRequest(prompt.ids, 8), text.sink()).ok());
  Await(text);
  const int64_t shared = engine.status().scheduler.num_shared_tokens;
  EXPECT_EQ(EmbedAll(engine, {prompt}).at(0).embedding, first.embedding);
  EXPECT_EQ(engine.status().scheduler.num_shared_tokens - shared, std::ssize(prompt.ids) - 1);
  EXPECT_EQ(AwaitNoTokens(engine, Deadline::After(seconds(10))), "");
}

// More prompts than the KV has room for, in small chunks, beside texts that are preempted.
TEST(EmbeddingWithLittleRoom, WaitsForRoomAndIsTheSame) {
  Deployment deployment;
  const ModelConfig model = *ModelConfig::Load(deployment.model);
  deployment.kv_dtype = DType::kF32;
  deployment.num_memory_nodes = 1;
  deployment.memory_bytes = KvBytesPerToken(model, deployment.kv_dtype) * 500;
  deployment.max_num_seqs = 8;
  deployment.max_num_batched_tokens = 11;
  Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
  ASSERT_TRUE(serving.ok()) << serving.status();
  Engine& engine = *(*serving)->engine;
  const std::vector<Embedded> prompts = StoryPrompts();
  const std::vector<Generated> alone = EmbedAll(engine, prompts);
  ASSERT_EQ(alone.size(), prompts.size());
  std::vector<Collector> texts(4);
  for (Collector& text : texts) {
    GenerateRequest request = GreedyRequest(prompts[0].ids, 150);
    request.ignore_eos = true;
    ASSERT_TRUE(engine.Submit(request, text.sink()).ok());
  }
  std::vector<Embedded> many;
  for (int i = 0; i < 10; ++i) many.insert(many.end(), prompts.begin(), prompts.end());
  const std::vector<Generated> crowded = EmbedAll(engine, many);
  ASSERT_EQ(crowded.size(), many.size());
  for (size_t i = 0; i < many.size(); ++i)
    EXPECT_EQ(crowded[i].embedding, alone[i % alone.size()].embedding) << "prompt " << i;
  for (const Collector& text : texts) EXPECT_TRUE(Await(text).finished);
  EXPECT_GT(engine.status().scheduler.num_preemptions, 0);
  EXPECT_EQ(AwaitNoTokens(engine, Deadline::After(seconds(10))), "");
}

TEST(EmbeddingRequests, ThatAskForMoreOrAreAbortedLeaveNothing) {
  Deployment deployment;
  deployment.max_num_seqs = deployment.max_num_batched_tokens = 2;
  Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
  ASSERT_TRUE(serving.ok()) << serving.status();
  Engine& engine = *(*serving)->engine;
  const std::vector<TokenId> prompt = StoryPrompts().back().ids;
  const Collector refused;
  GenerateRequest several = Embedding(prompt), longer = several, scored = several, empty = several,
                  outside = several;
  several.n = 2;
  longer.max_new_tokens = 2;
  scored.sampling.num_prompt_logprobs = 0;
  empty.prompt.clear();
  outside.prompt.push_back(1 << 20);
  for (const GenerateRequest& bad : {several, longer, scored, empty, outside})
    EXPECT_EQ(engine.Submit(bad, refused.sink()).status().code(), StatusCode::kInvalidArgument);
  std::vector<Collector> gone(4);
  for (Collector& collector : gone) {
    const auto id = engine.Submit(Embedding(StoryPrompts().at(4).ids), collector.sink());
    ASSERT_TRUE(id.ok()) << id.status();
    // Some while they wait, and one that runs.
    const auto runs = [&] { return engine.status().scheduler.num_running > 0; };
    if (&collector == &gone[1]) {
      ASSERT_TRUE(AwaitTrue(runs, Deadline::After(seconds(10))));
    }
    engine.Abort(*id);
  }
  for (const Collector& collector : gone) EXPECT_EQ(Await(collector).reason, FinishReason::kAbort);
  EXPECT_EQ(AwaitNoTokens(engine, Deadline::After(seconds(10))), "");
}

class EmbeddingOfFamily : public ::testing::TestWithParam<Family> {};

TEST_P(EmbeddingOfFamily, IsBehindTheLastNorm) {
  Deployment deployment;
  deployment.kind = "in-process";
  deployment.kv_dtype = DType::kF32;
  deployment.model = GetParam().dir;
  Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
  ASSERT_TRUE(serving.ok()) << serving.status();
  EmbedAll(*(*serving)->engine, {ReadEmbedded(Golden()["families"][GetParam().name])});
}

INSTANTIATE_TEST_SUITE_P(Families, EmbeddingOfFamily, ::testing::ValuesIn(Families()),
                         [](const auto& info) { return TestName(info.param); });

// The longest prompt several times, a few tokens in a step, so that there is time to harm nodes.
class EmbeddingRecovery : public ::testing::Test {
 protected:
  EmbeddingRecovery() {
    deployment_.kv_dtype = DType::kF32;
    deployment_.max_num_seqs = deployment_.max_num_batched_tokens = 2;
  }
  void Submit(Engine& engine) {
    collectors_.resize(6);
    for (const Collector& collector : collectors_)
      ASSERT_TRUE(engine.Submit(Embedding(prompt_.ids), collector.sink()).ok());
    // Some of the first prompt is computed.
    ASSERT_TRUE(AwaitTrue([&] { return engine.status().scheduler.num_started_tokens > 0; },
                          Deadline::After(seconds(30))));
  }
  void ExpectWhole() {
    std::vector<float> first;
    for (const Collector& collector : collectors_) {
      const Generated got = Await(collector);
      ExpectEmbedding(prompt_, got);
      if (first.empty()) first = got.embedding;
      EXPECT_EQ(got.embedding, first);
    }
  }

  Deployment deployment_;
  const Embedded prompt_ = StoryPrompts().at(4);
  std::vector<Collector> collectors_;
};

TEST_F(EmbeddingRecovery, MemoryNodesThatAreLostCostTimeAlone) {
  deployment_.num_memory_nodes = 3;
  Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment_);
  ASSERT_TRUE(serving.ok()) << serving.status();
  Submit(*(*serving)->engine);
  for (const char* victim : {"m0", "m1"})
    ASSERT_TRUE((*serving)->cluster->Kill(victim, SIGKILL).ok());
  EXPECT_FALSE(collectors_.back().results()[0].finished) << "it was harmed too late";
  ExpectWhole();
}

TEST_F(EmbeddingRecovery, AComputeNodeThatIsLostIsReplaced) {
  deployment_.num_compute_nodes = 2;
  Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment_);
  ASSERT_TRUE(serving.ok()) << serving.status();
  Submit(*(*serving)->engine);
  ASSERT_TRUE((*serving)->cluster->Kill("c0", SIGKILL).ok());
  EXPECT_FALSE(collectors_.back().results()[0].finished) << "it was harmed too late";
  ExpectWhole();
}

TEST_F(EmbeddingRecovery, TheNextManagerEmbedsWhatTheLastOneDidNot) {
  Result<std::unique_ptr<Serving>> serving = Serving::CreateWithManager(deployment_);
  ASSERT_TRUE(serving.ok()) << serving.status();
  Submit(*(*serving)->engine);
  ManagerProcess& manager = *(*serving)->manager;
  manager.Send(SIGKILL);
  manager.AwaitEnd(Deadline::After(seconds(10)));
  EXPECT_FALSE(collectors_.back().results()[0].finished) << "it was harmed too late";
  const Status started = manager.Start();
  ASSERT_TRUE(started.ok()) << started;
  ExpectWhole();
}

}  // namespace embedding_test
}  // namespace lamina::testing
