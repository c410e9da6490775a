#include "cli/machine_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(MachineMemory, NodesShareWhatWeightsLeave) {
  EXPECT_EQ(KvBytesOfEachNode({1000 * kMiB, 0.9, 300 * kMiB, 2}).value(), 300 * kMiB);
  EXPECT_EQ(KvBytesOfEachNode({1000 * kMiB + 1, 0.5, 0, 3}).value(), 166 * kMiB);
}

TEST(MachineMemory, TooLittleIsAnError) {
  for (const int64_t weights : {890 * kMiB, 2000 * kMiB}) {
    const Status status = KvBytesOfEachNode({1000 * kMiB, 0.9, weights, 1}).status();
    EXPECT_EQ(status.code(), StatusCode::kOutOfSpace);
    EXPECT_THAT(status.message(), HasSubstr("1.0 GB"));
  }
}

TEST(MachineMemory, RequestsCanUseSoMuch) {
  // 8 requests of 1000 tokens of 1 MiB, over 4 nodes.
  EXPECT_EQ(UsefulKvBytes({kMiB, 8, 1000, 4, 1}), 2001 * kMiB);
  // Each node has room for a request, or for its part of one.
  EXPECT_EQ(UsefulKvBytes({kMiB, 1, 1000, 4, 1}), 1001 * kMiB);
  EXPECT_EQ(UsefulKvBytes({kMiB, 1, 1000, 4, 2}), 501 * kMiB);
  EXPECT_EQ(UsefulKvBytes({1, 1, 1, 1, 1}), 16 * kMiB);
  // More than any machine has, and no overflow.
  EXPECT_GT(UsefulKvBytes({kMiB, int64_t{1} << 40, int64_t{1} << 40, 1, 1}), int64_t{1} << 60);
}

}  // namespace
}  // namespace lamina
