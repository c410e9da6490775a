#include "scheduler/round.h"

#include <gtest/gtest.h>

#include <vector>

namespace lamina {
namespace {

TEST(Round, CountsTheBatchesOnEachNode) {
  for (int num_nodes = 1; num_nodes <= 5; ++num_nodes) {
    for (int num_batches = 1; num_batches <= 12; ++num_batches) {
      std::vector<int> on_node(static_cast<size_t>(num_nodes));
      for (int batch = 0; batch < num_batches; ++batch)
        ++on_node[static_cast<size_t>(batch % num_nodes)];
      const double of_batch_0 = StepsOnNodeOf(0, num_batches, num_nodes, /*evenly=*/false);
      for (int batch = 0; batch < num_batches; ++batch) {
        const double steps = StepsOnNodeOf(batch, num_batches, num_nodes, /*evenly=*/false);
        EXPECT_EQ(steps, on_node[static_cast<size_t>(batch % num_nodes)])
            << "batch " << batch << " of " << num_batches << " on " << num_nodes;
        EXPECT_LE(steps, of_batch_0);
        EXPECT_DOUBLE_EQ(num_nodes * StepsOnNodeOf(batch, num_batches, num_nodes, /*evenly=*/true),
                         num_batches);
      }
    }
  }
}

TEST(Round, TakesAsLongAsTheSlowestOfItsParts) {
  EXPECT_EQ(RoundSeconds({.step = 42, .slices = 30, .attention = 12}, 1, 1), 42);
  EXPECT_EQ(RoundSeconds({.step = 42, .slices = 30, .attention = 12}, 1.5, 3), 45);
  EXPECT_EQ(RoundSeconds({.step = 42, .slices = 30, .prompts = 5, .attention = 12}, 1.5, 3), 50);
  EXPECT_EQ(RoundSeconds({.step = 40, .slices = 10, .attention = 30}, 1.5, 3), 90);
  EXPECT_EQ(RoundSeconds({.step = 40, .slices = 10, .attention = 30, .nics = 91}, 1.5, 3), 91);
}

}  // namespace
}  // namespace lamina
