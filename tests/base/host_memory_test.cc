#include "base/host_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>

namespace lamina {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

TEST(HostMemory, NoMoreIsAvailableThanThereIs) {
  const int64_t available = AvailableHostBytes();
  EXPECT_GT(available, 0);
  EXPECT_LE(available, int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE));
}

TEST(HostMemory, ARefusalSaysWhatWasAskedForAndWhatThereIs) {
  EXPECT_TRUE(CheckHostMemory(4096, "the values").ok());
  const Status status = CheckHostMemory(int64_t{1} << 60, "the values");
  EXPECT_EQ(status.code(), StatusCode::kOutOfSpace);
  EXPECT_EQ(status.message().rfind("the values need 1152921504.6 GB of this host's memory, which "
                                   "has ",
                                   0),
            0u)
      << status.message();
  EXPECT_TRUE(status.message().ends_with(" GB available")) << status.message();
}

TEST(HostMemory, AProductThatIsTooLargeIsTheLargestNumber) {
  EXPECT_EQ(SaturatedProduct(6, 7), 42);
  EXPECT_EQ(SaturatedProduct(kMost, 1), kMost);
  EXPECT_EQ(SaturatedProduct(kMost, 2), kMost);
}

}  // namespace
}  // namespace lamina
