// Policies that a deployment plugs in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "scheduler/scheduler.h"
#include "tests/support/fake_cluster.h"

namespace lamina {
namespace {

using ::testing::ElementsAre;

const SchedulerOptions kOptions{
    .max_num_seqs = 1, .max_num_batched_tokens = 64, .max_model_len = 500, .max_queued = 100};

// Preempted ones first, then the shortest prompt.
class ShortestFirst : public QueuePolicy {
 public:
  void Push(const Waiting& waiting) override { line_.push_back(waiting); }
  std::optional<Waiting> Top() const override {
    const auto top =
        std::min_element(line_.begin(), line_.end(), [](const Waiting& a, const Waiting& b) {
          return std::tuple(!a.preempted, a.preempted ? 0 : a.num_tokens, a.arrival) <
                 std::tuple(!b.preempted, b.preempted ? 0 : b.num_tokens, b.arrival);
        });
    if (top == line_.end()) return std::nullopt;
    return *top;
  }
  void Remove(SequenceId sequence) override {
    std::erase_if(line_, [&](const Waiting& waiting) { return waiting.sequence == sequence; });
  }
  size_t size() const override { return line_.size(); }

 private:
  std::vector<Waiting> line_;
};

TEST(CustomPolicy, ShortestPromptFirst) {
  FakeCluster cluster(kOptions, {KvNode{NodeId{0}, 1000}}, std::make_unique<ShortestFirst>());
  ASSERT_TRUE(cluster.Add(1, 30, 2).ok());
  ASSERT_TRUE(cluster.Add(2, 10, 2).ok());
  ASSERT_TRUE(cluster.Add(3, 20, 2).ok());
  ASSERT_TRUE(cluster.Add(4, 10, 2).ok());
  cluster.RunUntilIdle();
  EXPECT_THAT(cluster.nodes().first_starts(),
              ElementsAre(SequenceId{2}, SequenceId{4}, SequenceId{3}, SequenceId{1}));
}

TEST(CustomPolicy, AnotherOrderKeepsEverythingElse) {
  SchedulerOptions options = kOptions;
  options.max_num_seqs = 6;
  FakeCluster cluster(options, {KvNode{NodeId{0}, 100}, KvNode{NodeId{1}, 60}},
                      std::make_unique<ShortestFirst>());
  for (uint64_t id = 1; id <= 30; ++id)
    ASSERT_TRUE(
        cluster
            .Add(id, static_cast<int64_t>(id * 37 % 41 + 1), static_cast<int64_t>(id * 17 % 53 + 1))
            .ok());
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.results().size(), 30u);
  EXPECT_GT(cluster.nodes().num_preemptions(), 0) << "the case is too easy";
}

// The node that the test says, and what it was asked.
class PlaceAt : public PlacementPolicy {
 public:
  explicit PlaceAt(std::optional<NodeId>& node) : node_(node) {}
  bool spreads() const override { return false; }
  std::vector<KvShare> Place(int64_t num_tokens, int64_t num_growth,
                             std::span<const NodeLoad> nodes) override {
    last_num_tokens = num_tokens + num_growth;
    last_nodes.assign(nodes.begin(), nodes.end());
    if (!node_) return {};
    return {{*node_, num_tokens}};
  }
  NodeId Grow(std::span<const KvShare> held, std::span<const NodeLoad>) override {
    return held.back().node;
  }
  int64_t last_num_tokens = 0;
  std::vector<NodeLoad> last_nodes;

 private:
  std::optional<NodeId>& node_;
};

TEST(CustomPolicy, PlacementDecidesAndSeesTheLoad) {
  SchedulerOptions options = kOptions;
  options.max_num_seqs = 4;
  std::optional<NodeId> node = NodeId{1};
  auto owned = std::make_unique<PlaceAt>(node);
  const PlaceAt& placement = *owned;
  FakeCluster cluster(options, {KvNode{NodeId{0}, 100}, KvNode{NodeId{1}, 200}}, MakeFifoQueue(),
                      std::move(owned));
  ASSERT_TRUE(cluster.Add(1, 10, 100).ok());
  EXPECT_EQ(cluster.Step().work.at(0).route[0].node, NodeId{1});
  EXPECT_GT(placement.last_num_tokens, 10) << "with room to grow";
  EXPECT_LT(placement.last_num_tokens, 110);

  node = std::nullopt;
  ASSERT_TRUE(cluster.Add(2, 10, 2).ok());
  EXPECT_EQ(cluster.Step().work.size(), 1u) << "it waits";
  ASSERT_EQ(placement.last_nodes.size(), 2u);
  EXPECT_EQ(placement.last_num_tokens, 11);
  EXPECT_EQ(placement.last_nodes[0].free_tokens, 100);
  EXPECT_EQ(placement.last_nodes[1].capacity_tokens, 200);
  EXPECT_EQ(placement.last_nodes[1].num_sequences, 1);
  EXPECT_LT(placement.last_nodes[1].free_tokens, 189) << "room to grow is kept back";

  node = NodeId{7};
  EXPECT_EQ(cluster.Step().work.size(), 1u) << "a node that does not exist is no place";
  node = NodeId{0};
  ASSERT_TRUE(cluster.Add(3, 5, 1).ok());
  EXPECT_EQ(cluster.Step().work.size(), 3u);
  EXPECT_EQ(placement.last_nodes[0].free_tokens, 89) << "sequence 2 starts in the same plan";
  EXPECT_EQ(placement.last_nodes[0].num_sequences, 1);
  cluster.RunUntilIdle();
}

TEST(CustomPolicy, AFullNodeIsNoPlaceWhateverThePolicySays) {
  SchedulerOptions options = kOptions;
  options.max_num_seqs = 4;
  std::optional<NodeId> node = NodeId{0};
  FakeCluster cluster(options, {KvNode{NodeId{0}, 30}}, MakeFifoQueue(),
                      std::make_unique<PlaceAt>(node));
  ASSERT_TRUE(cluster.Add(1, 20, 10).ok());
  ASSERT_TRUE(cluster.Add(2, 11, 10).ok());
  EXPECT_EQ(cluster.Step().work.size(), 1u);
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.results().size(), 2u);
}

}  // namespace
}  // namespace lamina
