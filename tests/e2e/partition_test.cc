// Attention shared among memory nodes by kv_head and by token range: what a user gets from it
// beyond the golden continuations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/support/serving.h"

namespace lamina::testing {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

// Layers 4, kv_heads 4, head_dim 32, fp32.
constexpr int64_t kBytesPerToken = int64_t{2} * 4 * 4 * 32 * 4;

std::unique_ptr<Serving> Serve(const Deployment& deployment) {
  Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
  EXPECT_TRUE(serving.ok()) << serving.status();
  return serving.ok() ? std::move(*serving) : nullptr;
}

GenerateRequest Long(TokenId first, int64_t num_tokens) {
  GenerateRequest request = GreedyRequest({1, first, 300, 301}, num_tokens);
  request.ignore_eos = true;
  return request;
}

Generated Generate(Engine& engine, const GenerateRequest& request) {
  const Collector collector;
  const Result<RequestId> id = engine.Submit(request, collector.sink());
  EXPECT_TRUE(id.ok()) << id.status();
  if (!id.ok()) return {};
  EXPECT_TRUE(collector.Wait(Deadline::After(seconds(60))));
  return collector.results()[0];
}

int64_t StoredTokens(Engine& engine, const std::string& name) {
  for (const NodeStatus& node : engine.status().nodes) {
    if (node.name == name) return node.stored_tokens;
  }
  return 0;
}

TEST(Partition, ASequenceMayOutgrowEveryNode) {
  Deployment deployment;
  deployment.kv_dtype = DType::kF32;
  deployment.num_memory_nodes = 3;
  // None starts spread: it grows onto the next node when one is full.
  deployment.spread_tokens = 1000;
  deployment.memory_bytes = kBytesPerToken * 128;
  const std::unique_ptr<Serving> spread = Serve(deployment);
  ASSERT_NE(spread, nullptr);
  Deployment whole = deployment;
  whole.kind = "in-process";
  whole.memory_bytes = kBytesPerToken * 512;
  const std::unique_ptr<Serving> reference = Serve(whole);
  ASSERT_NE(reference, nullptr);

  const Generated expected = Generate(*reference->engine, Long(100, 300));
  ASSERT_EQ(expected.tokens.size(), 300u);
  const Collector collector;
  ASSERT_TRUE(spread->engine->Submit(Long(100, 300), collector.sink()).ok());
  ASSERT_TRUE(collector.WaitForTokens(290, Deadline::After(seconds(60))));
  EXPECT_TRUE(AwaitTrue(
      [&] { return collector.results()[0].finished || StoredTokens(*spread->engine, "m2") > 0; },
      Deadline::After(seconds(10))));
  ASSERT_TRUE(collector.Wait(Deadline::After(seconds(60))));
  EXPECT_EQ(collector.results()[0].tokens, expected.tokens);
  EXPECT_TRUE(collector.results()[0].error.ok()) << collector.results()[0].error;
  EXPECT_EQ(spread->engine->status().scheduler.num_preemptions, 0);
  const Result<RequestId> too_long = spread->engine->Submit(Long(100, 381), collector.sink());
  EXPECT_THAT(too_long.status().message(),
              HasSubstr("more than the nodes' KV capacity, together 384 tokens"));
  EXPECT_EQ(AwaitNoTokens(*spread->engine, Deadline::After(seconds(10))), "");
}

TEST(Partition, AGroupIsLostWithAnyOfItsNodes) {
  Deployment deployment;
  deployment.num_memory_nodes = 4;
  deployment.kv_head_parallel = 2;
  deployment.peer_timeout = seconds(2);
  const std::unique_ptr<Serving> serving = Serve(deployment);
  ASSERT_NE(serving, nullptr);
  Engine& engine = *serving->engine;
  std::vector<std::vector<TokenId>> expected;
  for (int i = 0; i < 4; ++i) expected.push_back(Generate(engine, Long(100 + i, 400)).tokens);
  const std::vector<Collector> collectors(4);
  for (int i = 0; i < 4; ++i)
    ASSERT_TRUE(engine.Submit(Long(100 + i, 400), collectors[static_cast<size_t>(i)].sink()).ok());
  for (const Collector& collector : collectors)
    ASSERT_TRUE(collector.WaitForTokens(20, Deadline::After(seconds(30))));
  for (const NodeUse& group : engine.status().scheduler.nodes)
    EXPECT_EQ(group.num_sequences, 2) << "half of the requests are on each group";
  ASSERT_TRUE(serving->cluster->Kill("m1", SIGKILL).ok());
  for (size_t i = 0; i < collectors.size(); ++i) {
    ASSERT_TRUE(collectors[i].Wait(Deadline::After(seconds(30)))) << "request " << i << " hangs";
    const Generated got = collectors[i].results()[0];
    EXPECT_TRUE(got.error.ok()) << got.error;
    EXPECT_EQ(got.tokens, expected[i]) << "it starts again on the other group";
  }
  EXPECT_EQ(engine.status().scheduler.nodes.size(), 1u);
  EXPECT_EQ(Generate(engine, Long(101, 400)).tokens, expected[1]) << "the other group serves";
  EXPECT_EQ(AwaitNoTokens(engine, Deadline::After(seconds(10))), "");
}

TEST(Partition, HeadsThatCannotBeSharedAreRefused) {
  Deployment deployment;
  deployment.num_memory_nodes = 5;
  deployment.kv_head_parallel = 5;
  const Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
  EXPECT_THAT(serving.status().message(),
              HasSubstr("kv_head_parallel 5 is more than the model's 4 kv_heads"));
}

}  // namespace
}  // namespace lamina::testing
