#include "transport/secret_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SecretFile : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "secret"; }
  void Write(const std::string& bytes, mode_t mode = 0600) const {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << bytes;
    ASSERT_EQ(chmod(path().c_str(), mode), 0);
  }
  std::string Refusal() const {
    const Result<std::string> secret = ReadSecretFile(path());
    EXPECT_EQ(secret.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(secret.status().message(), HasSubstr(path()));
    EXPECT_THAT(secret.status().message(), Not(HasSubstr("0123456789")));
    return secret.status().message();
  }

  const TemporaryFolder folder_;
};

TEST_F(SecretFile, OneNewlineIsNotPartOfIt) {
  for (const mode_t mode : {0600, 0400, 0700}) {
    Write("0123456789abcdef\n", mode);
    const Result<std::string> secret = ReadSecretFile(path());
    ASSERT_TRUE(secret.ok()) << secret.status();
    EXPECT_EQ(*secret, "0123456789abcdef");
  }
  Write("0123456789abcdef\n\n");
  EXPECT_EQ(*ReadSecretFile(path()), "0123456789abcdef\n");
}

TEST_F(SecretFile, NobodyElseMayHaveAnyRight) {
  for (const mode_t mode : {0640, 0604, 0610, 0602, 0666}) {
    Write("0123456789abcdef", mode);
    EXPECT_THAT(Refusal(), HasSubstr("use `chmod 600 " + path() + "`")) << mode;
  }
}

TEST_F(SecretFile, LengthHasBounds) {
  for (const std::string& bytes :
       {std::string(), std::string("\n"), std::string(15, 'x') + '\n',
        std::string(kMaxSecretBytes + 1, 'x'), std::string(kMaxSecretBytes + 1, 'x') + '\n',
        std::string(1 << 20, 'x')}) {
    Write(bytes);
    EXPECT_THAT(
        Refusal(),
        HasSubstr(
            "expected 16 to 4096; make a good one with `(umask 077 && openssl rand -hex 32 > " +
            path() + ")`"));
  }
  Write(std::string(kMaxSecretBytes, 'x') + '\n');
  EXPECT_EQ(ReadSecretFile(path())->size(), kMaxSecretBytes);
}

TEST_F(SecretFile, MustBeARegularFileThatExists) {
  EXPECT_EQ(*ReadSecretFile(""), "");
  const Status absent = ReadSecretFile(path()).status();
  EXPECT_EQ(absent.code(), StatusCode::kNotFound);
  EXPECT_THAT(absent.message(), HasSubstr("openssl rand -hex 32 > " + path()));
  std::filesystem::create_directory(path());
  EXPECT_THAT(Refusal(), HasSubstr("not a regular file"));
  std::filesystem::remove(path());
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  EXPECT_THAT(Refusal(), HasSubstr("not a regular file"));
}

TEST_F(SecretFile, MustBelongToThisUserOrRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  Write("0123456789abcdef");
  ASSERT_EQ(chown(path().c_str(), 12345, 0), 0);
  EXPECT_THAT(Refusal(), HasSubstr("belongs to user 12345"));
}

}  // namespace
}  // namespace lamina
