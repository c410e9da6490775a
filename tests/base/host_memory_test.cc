#include "base/host_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

void Write(const std::string& file, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(file).parent_path());
  std::ofstream(file) << text;
}

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

TEST(HostMemory, AGroupHasWhatItsLimitLeaves) {
  const TemporaryFolder folder;
  const std::string group = folder.path() + "/pods/a";
  EXPECT_EQ(AvailableGroupBytes(folder.path(), "0::/pods/a\n"), kMost);
  Write(group + "/memory.max", "max\n");
  Write(group + "/memory.current", "600\n");
  EXPECT_EQ(AvailableGroupBytes(folder.path(), "0::/pods/a\n"), kMost);
  Write(group + "/memory.max", "1000\n");
  EXPECT_EQ(AvailableGroupBytes(folder.path(), "0::/pods/a\n"), 400);
  Write(group + "/memory.stat", "anon 350\ninactive_file 250\nactive_file 0\n");
  EXPECT_EQ(AvailableGroupBytes(folder.path(), "0::/pods/a\n"), 650);
  Write(group + "/memory.current", "5000\n");
  EXPECT_EQ(AvailableGroupBytes(folder.path(), "0::/pods/a\n"), 0);
}

TEST(HostMemory, TheGroupsAroundAGroupCountToo) {
  const TemporaryFolder folder;
  Write(folder.path() + "/pods/a/memory.max", "1000\n");
  Write(folder.path() + "/pods/a/memory.current", "100\n");
  Write(folder.path() + "/pods/memory.max", "700\n");
  Write(folder.path() + "/pods/memory.current", "200\n");
  EXPECT_EQ(AvailableGroupBytes(folder.path(), "0::/pods/a\n"), 500);
  // A container sees its own group as the root.
  Write(folder.path() + "/memory.max", "300\n");
  Write(folder.path() + "/memory.current", "100\n");
  EXPECT_EQ(AvailableGroupBytes(folder.path(), "0::/\n"), 200);
  EXPECT_EQ(AvailableGroupBytes(folder.path(), "0::/not/mounted/here\n"), 200);
}

TEST(HostMemory, GroupsOfVersion1) {
  const TemporaryFolder folder;
  const std::string memberships = "5:cpu,cpuacct:/b\n4:hugetlb,memory:/pods/a\n1:name=systemd:/\n";
  const std::string group = folder.path() + "/memory/pods/a";
  Write(group + "/memory.limit_in_bytes", "9223372036854771712\n");
  Write(group + "/memory.usage_in_bytes", "600\n");
  EXPECT_GT(AvailableGroupBytes(folder.path(), memberships), int64_t{1} << 62);
  Write(group + "/memory.limit_in_bytes", "1000\n");
  Write(group + "/memory.stat", "inactive_file 1\ntotal_inactive_file 200\n");
  EXPECT_EQ(AvailableGroupBytes(folder.path(), memberships), 600);
  EXPECT_EQ(AvailableGroupBytes(folder.path(), "4:cpu:/pods/a\n"), kMost);
  EXPECT_EQ(AvailableGroupBytes(folder.path(), "no such thing\n"), kMost);
}

TEST(HostMemory, AProductThatIsTooLargeIsTheLargestNumber) {
  EXPECT_EQ(SaturatedProduct(6, 7), 42);
  EXPECT_EQ(SaturatedProduct(kMost, 1), kMost);
  EXPECT_EQ(SaturatedProduct(kMost, 2), kMost);
}

}  // namespace
}  // namespace lamina
