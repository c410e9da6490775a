#include "hub/hub_name.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

TEST(HubName, HasRevisionAndFile) {
  const std::optional<HubName> plain = HubName::Parse("Qwen/Qwen3-0.6B");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->owner, "Qwen");
  EXPECT_EQ(plain->name, "Qwen3-0.6B");
  EXPECT_EQ(plain->revision, "main");
  EXPECT_EQ(plain->file, "");
  EXPECT_EQ(plain->text(), "Qwen/Qwen3-0.6B");

  const std::optional<HubName> all = HubName::Parse("a/b_c.d@refs/pr/1:Q4_K_M/x-Q4_K_M.gguf");
  ASSERT_TRUE(all);
  EXPECT_EQ(all->repository(), "a/b_c.d");
  EXPECT_EQ(all->revision, "refs/pr/1");
  EXPECT_EQ(all->file, "Q4_K_M/x-Q4_K_M.gguf");
  EXPECT_EQ(all->text(), "a/b_c.d@refs/pr/1:Q4_K_M/x-Q4_K_M.gguf");

  const std::optional<HubName> file = HubName::Parse("a/b:Q8_0");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->revision, "main");
  EXPECT_EQ(file->text(), "a/b:Q8_0");
}

TEST(HubName, NothingElseIsAName) {
  for (const std::string text :
       {"",         "gpt2",   "/",        "/a",     "a/",       "a/b/c",  "../b",       "./b",
        "a/..",     "a/.b",   "~/b",      "-a/b",   "a--x/b",   "a/b--c", "a/b..c",     "a/b.",
        "a b/c",    "a/b\n",  "a/b@",     "a/b@..", "a/b@x//y", "a/b@/x", "a/b@x/../y", "a/b:",
        "a/b:../x", "a/b:/x", "a/b:x\\y", "a/b?c",  "a/b%2e",   "ä/b"})
    EXPECT_FALSE(HubName::Parse(text)) << text;
  EXPECT_FALSE(HubName::Parse("a/" + std::string(97, 'b')));
}

TEST(HubName, PlainPathsStayInTheirFolder) {
  for (const std::string path : {"a", "a/b", ".gitattributes", "a b", "ä.json", "...", "a..b/c"})
    EXPECT_TRUE(IsPlainPath(path)) << path;
  for (const std::string path : {"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b",
                                 "a/.", "a\\b", "a\nb", "\x7f"})
    EXPECT_FALSE(IsPlainPath(path)) << path;
  EXPECT_FALSE(IsPlainPath(std::string("a\0b", 3)));
  EXPECT_FALSE(IsPlainPath(std::string(256, 'a')));
  std::string deep = "a";
  for (int i = 0; i < 1000; ++i) deep += "/a";
  EXPECT_FALSE(IsPlainPath(deep));
}

TEST(HubName, CommitsHaveFortyDigits) {
  EXPECT_TRUE(IsCommit("0123456789abcdef0123456789abcdef01234567"));
  EXPECT_FALSE(IsCommit("0123456789ABCDEF0123456789abcdef01234567"));
  EXPECT_FALSE(IsCommit("0123456789abcdef0123456789abcdef0123456"));
  EXPECT_FALSE(IsCommit("../3456789abcdef0123456789abcdef01234567"));
}

}  // namespace
}  // namespace lamina
