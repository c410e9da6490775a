#include "scheduler/policies.h"

#include <gtest/gtest.h>

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

TEST(LeastLoadedPlacement, TakesTheLeastUsedShareAmongThoseWithRoom) {
  const auto placement = MakeLeastLoadedPlacement();
  const std::vector<NodeLoad> nodes = {{NodeId{1}, 100, 50, 1}, {NodeId{2}, 1000, 400, 1}, {NodeId{3}, 40, 30, 9}};
  EXPECT_EQ(placement->Place(30, nodes), NodeId{3});
  EXPECT_EQ(placement->Place(31, nodes), NodeId{1});
  EXPECT_EQ(placement->Place(51, nodes), NodeId{2});
  EXPECT_EQ(placement->Place(401, nodes), std::nullopt);
  EXPECT_EQ(placement->Place(1, {}), std::nullopt);
}

TEST(LeastLoadedPlacement, BreaksTiesByFewestSequencesThenLowestId) {
  const auto placement = MakeLeastLoadedPlacement();
  EXPECT_EQ(placement->Place(1, std::vector<NodeLoad>{{NodeId{1}, 30, 10, 2}, {NodeId{2}, 90, 30, 1}}), NodeId{2});
  EXPECT_EQ(placement->Place(1, std::vector<NodeLoad>{{NodeId{5}, 30, 10, 1}, {NodeId{4}, 90, 30, 1}}), NodeId{4});
}

}  // namespace
}  // namespace lamina
