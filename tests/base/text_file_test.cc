#include "base/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

using ::testing::HasSubstr;

class TextFile : public ::testing::Test {
 protected:
  std::string Refusal(const std::string& path) {
    const Result<std::string> text = ReadTextFile(path);
    EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument);  // not as one that is not there
    EXPECT_THAT(text.status().message(), HasSubstr(path));
    return text.status().message();
  }

  const TemporaryFolder folder_;
};

TEST_F(TextFile, IsReadAsAWhole) {
  for (const size_t size : {0, 1, 70000}) {
    std::string text(size, 'a');
    if (size > 1) text[size / 2] = '\0';
    std::ofstream(folder_ / "file", std::ios::binary) << text;
    const Result<std::string> read = ReadTextFile(folder_ / "file");
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(*read, text);
  }
}

TEST_F(TextFile, ThatIsNotThereIsNamed) {
  const Result<std::string> text = ReadTextFile(folder_ / "nothing");
  EXPECT_EQ(text.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(text.status().message(), HasSubstr("nothing: No such file"));
}

TEST_F(TextFile, MayHaveOnlySoManyBytes) {
  std::ofstream(folder_ / "file") << "12345";
  EXPECT_TRUE(ReadTextFile(folder_ / "file", 5).ok());
  EXPECT_THAT(ReadTextFile(folder_ / "file", 4).status().message(),
              HasSubstr("has 5 bytes, expected at most 4"));
  std::filesystem::resize_file(folder_ / "file", uintmax_t{1} << 40);
  EXPECT_THAT(ReadTextFile(folder_ / "file").status().message(), HasSubstr("expected at most"));
}

// A model folder of a stranger may hold anything; nobody waits for it or fills memory with it.
TEST_F(TextFile, IsARegularFile) {
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(Refusal(folder_ / "pipe"), HasSubstr("is a pipe"));
  EXPECT_THAT(Refusal("/dev/zero"), HasSubstr("is a device"));
  EXPECT_THAT(Refusal(folder_ / ""), HasSubstr("is a folder"));
  std::filesystem::create_symlink("/dev/zero", folder_ / "link");
  EXPECT_THAT(Refusal(folder_ / "link"), HasSubstr("is a device"));
}

}  // namespace
}  // namespace lamina::testing
