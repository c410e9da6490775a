#include "scheduler/policies.h"

#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace lamina {
namespace {

std::vector<uint64_t> Drain(QueuePolicy& queue) {
  std::vector<uint64_t> order;
  while (const auto top = queue.Top()) {
    order.push_back(top->sequence.value);
    queue.Remove(top->sequence);
  }
  EXPECT_EQ(queue.size(), 0u);
  return order;
}

TEST(FifoQueue, ServesInArrivalOrder) {
  const auto queue = MakeFifoQueue();
  EXPECT_FALSE(queue->Top());
  queue->Push({SequenceId{30}, 5, false, 0});
  queue->Push({SequenceId{10}, 1, false, 1});
  queue->Push({SequenceId{20}, 9, false, 2});
  EXPECT_EQ(queue->size(), 3u);
  EXPECT_EQ(queue->Top()->num_tokens, 5);
  EXPECT_EQ(queue->size(), 3u);
  EXPECT_EQ(Drain(*queue), (std::vector<uint64_t>{30, 10, 20}));
}

TEST(FifoQueue, PreemptedOnesComeFirstOldestFirst) {
  const auto queue = MakeFifoQueue();
  queue->Push({SequenceId{9}, 1, false, 4});
  queue->Push({SequenceId{8}, 1, true, 2});
  queue->Push({SequenceId{7}, 1, true, 3});
  queue->Push({SequenceId{6}, 1, true, 1});
  queue->Push({SequenceId{5}, 1, false, 0});
  EXPECT_EQ(Drain(*queue), (std::vector<uint64_t>{6, 8, 7, 5, 9}));
}

TEST(FifoQueue, RemovesAnyOneAndIgnoresUnknownOnes) {
  const auto queue = MakeFifoQueue();
  for (uint64_t i = 0; i < 4; ++i) queue->Push({SequenceId{i}, 1, false, i});
  queue->Remove(SequenceId{2});
  queue->Remove(SequenceId{2});
  queue->Remove(SequenceId{77});
  EXPECT_EQ(queue->size(), 3u);
  EXPECT_EQ(Drain(*queue), (std::vector<uint64_t>{0, 1, 3}));
}

Waiting Urgent(uint64_t id, int priority, int due_ms, bool preempted = false) {
  Waiting waiting{SequenceId{id}, 1, preempted, id};
  waiting.priority = priority;
  if (due_ms > 0) waiting.due = TimePoint(milliseconds(due_ms));
  return waiting;
}

TEST(FifoQueue, IsNotInAHurry) {
  const auto queue = MakeFifoQueue();
  EXPECT_FALSE(queue->ranks());
  queue->Push(Urgent(1, 5, 900));
  queue->Push(Urgent(2, -5, 100));
  EXPECT_EQ(Drain(*queue), (std::vector<uint64_t>{1, 2}));
}

TEST(PriorityQueue, ServesTheSmallestThenPreemptedOnesThenTheOldest) {
  const auto queue = MakePriorityQueue();
  EXPECT_TRUE(queue->ranks());
  queue->Push(Urgent(1, 0, 100));
  queue->Push(Urgent(2, 3, 100));
  queue->Push(Urgent(3, -2, 900));
  queue->Push(Urgent(4, 0, 50, /*preempted=*/true));
  queue->Push(Urgent(5, 3, 10, /*preempted=*/true));
  queue->Push(Urgent(6, 0, 10));
  EXPECT_EQ(Drain(*queue), (std::vector<uint64_t>{3, 4, 1, 6, 5, 2}));
}

TEST(DeadlineQueue, ServesWhatIsDueFirstAndTheHopelessLast) {
  const auto queue = MakeDeadlineQueue();
  EXPECT_TRUE(queue->ranks());
  queue->Push(Urgent(1, 0, 300));
  queue->Push(Urgent(2, 0, 0));
  queue->Push(Urgent(3, 9, 100));
  queue->Push(Urgent(4, 0, 200, /*preempted=*/true));
  Waiting hopeless = Urgent(5, 0, 50);
  queue->Push(hopeless);
  EXPECT_EQ(queue->Top()->sequence, SequenceId{5});
  hopeless.hopeless = true;
  queue->Remove(hopeless.sequence);
  queue->Push(hopeless);
  EXPECT_EQ(Drain(*queue), (std::vector<uint64_t>{3, 4, 1, 2, 5}));
}

std::optional<NodeId> PlaceWhole(PlacementPolicy& placement, int64_t num_tokens,
                                 std::span<const NodeLoad> nodes) {
  const std::vector<KvShare> shares = placement.Place(num_tokens, 0, nodes);
  if (shares.empty()) return std::nullopt;
  EXPECT_EQ(shares.size(), 1u);
  EXPECT_EQ(shares[0].num_tokens, num_tokens);
  return shares[0].node;
}

TEST(LeastLoadedPlacement, TakesTheLeastUsedShareAmongThoseWithRoom) {
  const auto placement = MakeLeastLoadedPlacement();
  const std::vector<NodeLoad> nodes = {
      {NodeId{1}, 100, 50, 1}, {NodeId{2}, 1000, 400, 1}, {NodeId{3}, 40, 30, 9}};
  EXPECT_EQ(PlaceWhole(*placement, 30, nodes), NodeId{3});
  EXPECT_EQ(PlaceWhole(*placement, 31, nodes), NodeId{1});
  EXPECT_EQ(PlaceWhole(*placement, 51, nodes), NodeId{2});
  EXPECT_EQ(PlaceWhole(*placement, 401, nodes), std::nullopt);
  EXPECT_EQ(PlaceWhole(*placement, 1, {}), std::nullopt);
  EXPECT_TRUE(placement->Place(25, 6, nodes)[0].node == NodeId{1}) << "growth counts";
}

TEST(LeastLoadedPlacement, BreaksTiesByFewestSequencesThenLowestId) {
  const auto placement = MakeLeastLoadedPlacement();
  EXPECT_EQ(PlaceWhole(*placement, 1,
                       std::vector<NodeLoad>{{NodeId{1}, 30, 10, 2}, {NodeId{2}, 90, 30, 1}}),
            NodeId{2});
  EXPECT_EQ(PlaceWhole(*placement, 1,
                       std::vector<NodeLoad>{{NodeId{5}, 30, 10, 1}, {NodeId{4}, 90, 30, 1}}),
            NodeId{4});
}

TEST(LeastLoadedPlacement, AFastNodeTakesMore) {
  const auto placement = MakeLeastLoadedPlacement();
  EXPECT_EQ(
      PlaceWhole(*placement, 1,
                 std::vector<NodeLoad>{{NodeId{1}, 100, 50, 1, 2}, {NodeId{2}, 100, 70, 1, 1}}),
      NodeId{1});
  EXPECT_EQ(
      PlaceWhole(*placement, 1,
                 std::vector<NodeLoad>{{NodeId{1}, 100, 30, 1, 2}, {NodeId{2}, 100, 70, 1, 1}}),
      NodeId{2});
}

using Shares = std::vector<std::pair<uint32_t, int64_t>>;

Shares Spread(int64_t spread_tokens, int64_t num_tokens, std::span<const NodeLoad> nodes,
              int64_t num_growth = 0) {
  Shares shares;
  for (const KvShare& share :
       MakeSpreadPlacement(spread_tokens)->Place(num_tokens, num_growth, nodes))
    shares.emplace_back(share.node.value, share.num_tokens);
  return shares;
}

TEST(SpreadPlacement, ShortOnesStayWholeLongOnesSpreadEvenly) {
  const std::vector<NodeLoad> nodes = {
      {NodeId{1}, 100, 100}, {NodeId{2}, 100, 100}, {NodeId{3}, 100, 100}};
  EXPECT_EQ(Spread(20, 20, nodes), (Shares{{1, 20}}));
  EXPECT_EQ(Spread(20, 40, nodes), (Shares{{1, 20}, {2, 20}}));
  EXPECT_EQ(Spread(20, 90, nodes), (Shares{{1, 30}, {2, 30}, {3, 30}}));
  EXPECT_EQ(Spread(20, 300, nodes), (Shares{{1, 100}, {2, 100}, {3, 100}})) << "all there is";
  EXPECT_EQ(Spread(20, 301, nodes), Shares{});
  EXPECT_EQ(Spread(20, 290, nodes, 11), Shares{}) << "growth counts";
}

TEST(SpreadPlacement, LevelsWhatIsThereOverTheNodesSpeed) {
  const std::vector<NodeLoad> skewed = {{NodeId{1}, 100, 100, 0, 2}, {NodeId{2}, 100, 100, 0, 1}};
  EXPECT_EQ(Spread(1, 90, skewed), (Shares{{1, 60}, {2, 30}}));
  const std::vector<NodeLoad> used = {{NodeId{1}, 100, 60}, {NodeId{2}, 100, 100}};
  EXPECT_EQ(Spread(1, 60, used), (Shares{{2, 50}, {1, 10}}));
  EXPECT_EQ(Spread(100, 70, used), (Shares{{2, 70}})) << "whole where it has room";
  const std::vector<NodeLoad> small = {{NodeId{1}, 10, 10}, {NodeId{2}, 100, 80}};
  EXPECT_EQ(Spread(100, 50, small), (Shares{{2, 50}}))
      << "the small node has the lower time and no room";
  EXPECT_EQ(Spread(45, 90, small), (Shares{{2, 80}, {1, 10}}))
      << "what does not fit goes elsewhere";
}

TEST(SpreadPlacement, GrowsWhereTimeIsLeastAndLeavesWhenItMust) {
  const auto placement = MakeSpreadPlacement(50);
  const std::vector<NodeLoad> nodes = {
      {NodeId{1}, 100, 20}, {NodeId{2}, 100, 40}, {NodeId{3}, 100, 90}};
  const auto grow = [&](const std::vector<KvShare>& held, const std::vector<NodeLoad>& free) {
    return placement->Grow(held, free);
  };
  EXPECT_EQ(grow({{NodeId{1}, 30}}, nodes), NodeId{1}) << "short: it stays";
  EXPECT_EQ(grow({{NodeId{1}, 50}}, nodes), NodeId{3}) << "it has outgrown one node";
  EXPECT_EQ(grow({{NodeId{1}, 40}, {NodeId{2}, 40}}, nodes), NodeId{2}) << "two are enough";
  EXPECT_EQ(grow({{NodeId{1}, 30}}, {nodes[1], nodes[2]}), NodeId{3}) << "its node is full";
}

}  // namespace
}  // namespace lamina
