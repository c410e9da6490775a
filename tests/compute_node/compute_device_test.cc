#include "compute_node/compute_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/tiny_checkpoint.h"

namespace lamina {
namespace {

TEST(CpuDevice, StepsThatTheHostHasNoMemoryForAreRefused) {
  const TinyCheckpoint checkpoint({});
  WorkerTeam team(1);
  CpuDevice device(team);
  WeightOptions options;
  options.model_dir = checkpoint.dir();
  const std::unique_ptr<LoadedModel> model = *device.Load(options);
  const Status status = device.MakeSlices(*model, std::numeric_limits<int>::max()).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(
      status.message(),
      ::testing::MatchesRegex("the values of a step of 2147483647 tokens need [0-9.]+ GB of this "
                              "host's memory, which has [0-9.]+ GB available"));
  EXPECT_TRUE(device.MakeSlices(*model, 8).ok());
}

}  // namespace
}  // namespace lamina
