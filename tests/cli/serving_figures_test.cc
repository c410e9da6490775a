#include "cli/serving_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace {

using ::testing::HasSubstr;

TEST(ServingFigures, ALineOfWhatHappened) {
  EngineStatus status;
  status.scheduler.num_running = 2;
  status.scheduler.num_waiting = 1;
  status.scheduler.num_started_tokens = 200;
  status.scheduler.num_shared_tokens = 50;
  NodeUse node;
  node.used_tokens = 100;
  node.capacity_tokens = 400;
  status.scheduler.nodes = {node, node};
  EXPECT_EQ(FiguresLine({10, 20, 1}, {110, 70, 4}, 10, status),
            "10.0 prompt tokens/s, 5.0 output tokens/s, 3 sequences ended, 2 running, 1 waiting, "
            "25.0 % of the KV cache in use, 25.0 % of prompt tokens found in it");
}

TEST(ServingFigures, NothingIsSaidOfNothing) {
  EXPECT_EQ(FiguresLine({5, 5, 5}, {5, 5, 5}, 10, EngineStatus()), "");
  EngineStatus waits;
  waits.scheduler.num_parked = 1;
  EXPECT_THAT(FiguresLine({5, 5, 5}, {5, 5, 5}, 10, waits), HasSubstr("1 waiting"));
}

}  // namespace
}  // namespace lamina
