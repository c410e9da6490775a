#include "base/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "plan/statistics.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

using ::testing::HasSubstr;

std::string TextOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(OutputFile, IsWrittenWholeOrNamed) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.json";
  ASSERT_TRUE(WriteOutput(path, "a longer text").ok());
  ASSERT_TRUE(WriteOutput(path, "short\n").ok());
  EXPECT_EQ(TextOf(path), "short\n");
  EXPECT_TRUE(WriteOutput("", "text").ok());
  EXPECT_THAT(WriteOutput(folder / "none" + "/b", "text").message(),
              HasSubstr("cannot write " + (folder / "none")));
}

TEST(OutputFile, OneThatCannotBeWrittenKeepsNoOtherFromIt) {
  const TemporaryFolder folder;
  const Status status = WriteOutputs(
      {{folder / "none" + "/a", "x"}, {"/dev/full", "y"}, {folder / "b", "z"}, {"", "none"}});
  EXPECT_THAT(status.message(), HasSubstr("none/a: No such file or directory"));
  EXPECT_THAT(status.message(), HasSubstr("/dev/full: No space left on device"));
  EXPECT_EQ(TextOf(folder / "b"), "z");
}

TEST(OutputFile, CheckingLeavesNothingBehindAndNothingOut) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteOutput(folder / "old", "kept").ok());
  EXPECT_TRUE(CheckWritable({"", folder / "new", folder / "old"}).ok());
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));
  EXPECT_EQ(TextOf(folder / "old"), "kept");
  EXPECT_THAT(CheckWritable({folder / "old", folder / "none" + "/b"}).message(),
              HasSubstr("none/b"));
}

TEST(Percentile, LiesBetweenTheRanksAroundIt) {
  EXPECT_DOUBLE_EQ(Percentile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(Percentile({4, 1, 3, 2}, 0), 1);
  EXPECT_DOUBLE_EQ(Percentile({4, 1, 3, 2}, 1), 4);
  EXPECT_DOUBLE_EQ(Percentile({10, 20, 30, 40, 50}, 0.9), 46);
  EXPECT_DOUBLE_EQ(Percentile({7}, 0.99), 7);
}

}  // namespace
}  // namespace lamina::testing
