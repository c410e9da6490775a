#include "cli/start_screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Two layers of two kv_heads of 8 elements: 2 x 2 x 2 x 8 x 4 bytes for each token.
constexpr int64_t kBytesPerToken = 256;

ModelConfig SmallModel() {
  ModelConfig model;
  model.num_layers = 2;
  model.num_heads = 4;
  model.num_kv_heads = 2;
  model.head_dim = 8;
  model.dtype = DType::kF32;
  return model;
}

ClusterConfig Cluster(std::vector<int64_t> memory_tokens) {
  ClusterConfig config;
  config.served_name = "org/name";
  config.kv_dtype = DType::kF32;
  config.max_model_len = 1000;
  NodeConfig compute;
  compute.role = NodeRole::kCompute;
  config.nodes.push_back(compute);
  for (const int64_t tokens : memory_tokens) {
    NodeConfig node;
    node.memory_bytes = tokens * kBytesPerToken;
    config.nodes.push_back(node);
  }
  return config;
}

const ModelFacts kFacts = {"LlamaForCausalLM", 1'640'000, 6'560'000, OkStatus()};

TEST(StartScreen, TokensOfEachNodeAndOfAll) {
  const std::optional<KvRoom> room = KvRoomOf(Cluster({1000, 500}), SmallModel());
  ASSERT_TRUE(room);
  EXPECT_EQ(room->bytes_per_token, kBytesPerToken);
  EXPECT_EQ(room->all_tokens, 1500);
  EXPECT_EQ(room->sequence_tokens, 1000);
}

TEST(StartScreen, ASpreadSequenceMayFillAllNodes) {
  ClusterConfig config = Cluster({1000, 500});
  config.spread_tokens = 100;
  EXPECT_EQ(KvRoomOf(config, SmallModel())->sequence_tokens, 1500);
}

TEST(StartScreen, NodesOfAGroupHoldTheirHeads) {
  ClusterConfig config = Cluster({1000, 500, 300, 300});
  config.kv_head_parallel = 2;
  const std::optional<KvRoom> room = KvRoomOf(config, SmallModel());
  ASSERT_TRUE(room);
  EXPECT_EQ(room->all_tokens, 1000 + 600);
  EXPECT_EQ(room->sequence_tokens, 1000);
}

TEST(StartScreen, WithoutMemoryNodesTheComputeNodeHasAll) {
  ClusterConfig config = Cluster({});
  config.nodes[0].memory_bytes = 700 * kBytesPerToken;
  EXPECT_EQ(KvRoomOf(config, SmallModel())->sequence_tokens, 700);
}

TEST(StartScreen, LayersOnADiskLeaveItOpen) {
  ClusterConfig config = Cluster({1000});
  config.nodes[1].offload.interval = 2;
  EXPECT_FALSE(KvRoomOf(config, SmallModel()));
  EXPECT_THAT(StartScreen(config, SmallModel(), kFacts), Not(HasSubstr("room")));
}

TEST(StartScreen, SaysWhatAPersonWantsToKnow) {
  const std::string text = StartScreen(Cluster({1024, 1024}), SmallModel(), kFacts);
  EXPECT_THAT(text, HasSubstr("org/name: LlamaForCausalLM, 2 M parameters"));
  EXPECT_THAT(text, HasSubstr("256 bytes for each token"));
  EXPECT_THAT(text, HasSubstr("2 memory nodes of 256KiB have room for about 2048 tokens"));
  EXPECT_THAT(text, HasSubstr("64 sequences at a time, of 1000 tokens at most"));
  EXPECT_THAT(text, Not(HasSubstr("refused")));
}

TEST(StartScreen, WarnsOfARequestThatCannotFit) {
  const std::string text = StartScreen(Cluster({999, 999}), SmallModel(), kFacts);
  EXPECT_THAT(text, HasSubstr("room for 999 tokens of one sequence only"));
  EXPECT_THAT(text, HasSubstr("--memory 1MiB"));
  EXPECT_THAT(text, HasSubstr("--max-model-len 999"));
}

}  // namespace
}  // namespace lamina
