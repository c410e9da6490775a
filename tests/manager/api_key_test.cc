#include "manager/api_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ApiKeyTest : public ::testing::Test {
 protected:
  std::string FileWith(const std::string& bytes, mode_t mode = 0600) {
    WriteFile(folder_ / "key", bytes);
    chmod((folder_ / "key").c_str(), mode);
    return folder_ / "key";
  }

  TemporaryFolder folder_;
};

TEST_F(ApiKeyTest, ComesFromTheOptionOrTheFile) {
  EXPECT_EQ(FindApiKey("", "").value(), "");
  EXPECT_EQ(FindApiKey("abc", "").value(), "abc");
  EXPECT_EQ(FindApiKey("", FileWith("abc\n")).value(), "abc");
  EXPECT_EQ(FindApiKey("", FileWith("abc")).value(), "abc");
  const Status both = FindApiKey("abc", FileWith("abc")).status();
  EXPECT_EQ(both.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(both.message(), HasSubstr("not both"));
}

TEST_F(ApiKeyTest, AFileThatOthersMayReadIsRefused) {
  const Status status = FindApiKey("", FileWith("open-sesame", 0640)).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("chmod 600"));
  EXPECT_EQ(FindApiKey("", folder_ / "none").status().code(), StatusCode::kNotFound);
}

TEST_F(ApiKeyTest, WhatIsNoKeyIsRefusedAndNotRepeated) {
  for (const std::string& bytes : {std::string(), std::string("\n"), std::string("two words"),
                                   std::string("two\nlines\n"), std::string(5000, 'k')}) {
    const Status status = FindApiKey("", FileWith(bytes)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bytes.size();
    EXPECT_THAT(status.message(), HasSubstr("holds no key"));
    EXPECT_THAT(status.message(), Not(HasSubstr("two")));
  }
}

TEST_F(ApiKeyTest, TheGivenVariablesComeBeforeTheEnvironment) {
  setenv("LAMINA_API_KEY", "of the shell", 1);
  EXPECT_EQ(FindApiKey({{"OTHER", "x"}}).value(), "of the shell");
  EXPECT_EQ(FindApiKey({{"LAMINA_API_KEY", "given"}}).value(), "given");
  unsetenv("LAMINA_API_KEY");
  EXPECT_EQ(FindApiKey({{"LAMINA_API_KEY_FILE", FileWith("filed\n")}}).value(), "filed");
  EXPECT_EQ(FindApiKey(std::vector<std::pair<std::string, std::string>>{}).value(), "");
}

}  // namespace
}  // namespace lamina
