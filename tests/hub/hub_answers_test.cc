#include "hub/hub_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/content_hash.h"
#include "hub/https_url.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;

const std::string kSha1 = "ce013625030ba8dba906f756967f9e9ca394464a";
const std::string kSha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

std::string Entry(const std::string& path, const std::string& more = "") {
  return R"({"type": "file", "size": 3, "oid": ")" + kSha1 + R"(", "path": ")" + path + "\"" +
         more + "}";
}

TEST(HubAnswers, ATreeHasFiles) {
  std::vector<HubFile> files;
  const std::string lfs = R"(, "lfs": {"oid": ")" + kSha256 + R"(", "size": 7000000000})";
  const Status status =
      ParseTree("[" + Entry("config.json") + R"(, {"type": "directory", "path": "a"}, )" +
                    Entry("a/model.safetensors", lfs) + "]",
                "hub", files);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].path, "config.json");
  EXPECT_EQ(files[0].size, 3);
  EXPECT_EQ(files[0].hash(), kSha1);
  EXPECT_EQ(files[1].path, "a/model.safetensors");
  EXPECT_EQ(files[1].size, 7'000'000'000);
  EXPECT_EQ(files[1].hash(), kSha256);
}

TEST(HubAnswers, WhatWouldDoHarmIsCorrupt) {
  for (const std::string& tree :
       {std::string("{}"), std::string("[1]"), std::string("no JSON"),
        std::string("[]}, {\"a\": 1"), "[" + Entry("../x") + "]", "[" + Entry("/etc/passwd") + "]",
        "[" + Entry("a/../../x") + "]", "[" + Entry("") + "]", "[" + Entry("a\\u0000b") + "]",
        "[" + Entry("a\\\\b") + "]", "[" + Entry("x") + "," + Entry("x") + "]",
        "[" + Entry("x", R"(, "lfs": 1)") + "]",
        "[" + Entry("x", R"(, "lfs": {"oid": "../x", "size": 1})") + "]",
        "[" + Entry("x", R"(, "lfs": {"oid": ")" + kSha256 + R"(", "size": -1})") + "]",
        "[" + Entry("x", R"(, "lfs": {"oid": ")" + kSha256 + R"(", "size": 1e30})") + "]",
        std::string(R"([{"type": "file", "path": "x", "size": 1, "oid": "../../x"}])"),
        std::string(R"([{"type": "file", "path": "x", "size": 1}])"),
        "[" + std::string(200, '[') + std::string(200, ']') + "]"}) {
    std::vector<HubFile> files;
    const Status status = ParseTree(tree, "https://hub/api", files);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << tree << status;
    EXPECT_THAT(status.message(), HasSubstr("https://hub/api"));
  }
}

TEST(HubAnswers, PagesDoNotRepeatFiles) {
  std::vector<HubFile> files;
  ASSERT_TRUE(ParseTree("[" + Entry("a") + "]", "hub", files).ok());
  ASSERT_TRUE(ParseTree("[" + Entry("b") + "]", "hub", files).ok());
  EXPECT_EQ(files.size(), 2u);
  EXPECT_EQ(ParseTree("[" + Entry("a") + "]", "hub", files).code(), StatusCode::kCorrupt);
}

TEST(HubAnswers, ARevisionIsACommit) {
  EXPECT_EQ(ParseCommit(R"({"sha": ")" + kSha1 + "\"}", "hub").value(), kSha1);
  for (const std::string text : {"{}", "[]", "", R"({"sha": 1})", R"({"sha": "../../x"})"})
    EXPECT_EQ(ParseCommit(text, "hub").status().code(), StatusCode::kCorrupt) << text;
}

TEST(HubAnswers, TheNextPageIsInTheLinkHeader) {
  EXPECT_EQ(NextPage(R"(<https://hub/a?cursor=x%3D>; rel="next")"), "https://hub/a?cursor=x%3D");
  EXPECT_EQ(NextPage(R"(<https://hub/1>; rel="prev", <https://hub/3>; rel="next")"),
            "https://hub/3");
  for (const std::string header : {"", "<", "<x", "<x>", R"(<x>; rel="prev")", R"(rel="next")"})
    EXPECT_FALSE(NextPage(header)) << header;
}

// As `git hash-object` and `sha256sum` say.
TEST(HubAnswers, ContentHashesAreGitsAndSha256) {
  HubFile small;
  small.size = 6;
  small.git_sha1 = kSha1;
  Result<ContentHash> git = ContentHash::Start(small);
  ASSERT_TRUE(git.ok()) << git.status();
  git->Add("hel");
  git->Add("lo\n");
  EXPECT_EQ(git->Finish(), kSha1);

  HubFile large;
  large.sha256 = kSha256;
  Result<ContentHash> sha256 = ContentHash::Start(large);
  ASSERT_TRUE(sha256.ok()) << sha256.status();
  sha256->Add("abc");
  EXPECT_EQ(sha256->Finish(), kSha256);
}

TEST(HttpsUrl, HasHostPortAndTarget) {
  const Result<HttpsUrl> plain = HttpsUrl::Parse("https://huggingface.co");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->host, "huggingface.co");
  EXPECT_EQ(plain->port, "443");
  EXPECT_EQ(plain->target, "/");
  EXPECT_EQ(plain->authority(), "huggingface.co");
  const Result<HttpsUrl> full = HttpsUrl::Parse("https://[::1]:8443/a/b?c=d#e");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->host, "::1");
  EXPECT_EQ(full->text(), "https://[::1]:8443/a/b?c=d");
  EXPECT_EQ(HttpsUrl::Parse("https://h?q")->target, "/?q");
  EXPECT_EQ(full->Follow("/x")->text(), "https://[::1]:8443/x");
  EXPECT_EQ(full->Follow("//cdn/x")->text(), "https://cdn/x");
  EXPECT_EQ(full->Follow("https://cdn:1/x?y")->text(), "https://cdn:1/x?y");
}

TEST(HttpsUrl, NothingElseIsOne) {
  for (const std::string url :
       {"", "huggingface.co", "http://h", "ftp://h", "https://", "https:///x",
        "https://h:", "https://h:0", "https://h:65536", "https://h:1x", "https://u:p@h",
        "https://h/a b", "https://h/\r\nX: y", "https://[::1", "https://[::1]x", "https://h\x80"})
    EXPECT_EQ(HttpsUrl::Parse(url).status().code(), StatusCode::kInvalidArgument) << url;
  const HttpsUrl url = *HttpsUrl::Parse("https://h/a");
  EXPECT_FALSE(url.Follow("").ok());
  EXPECT_FALSE(url.Follow("http://h/a").ok());
  EXPECT_FALSE(url.Follow("file:///etc/passwd").ok());
}

TEST(HttpsUrl, PathsArePercentEncoded) {
  EXPECT_EQ(PercentEncoded("a b/c+%?#.json", true), "a%20b/c%2B%25%3F%23.json");
  EXPECT_EQ(PercentEncoded("refs/pr/1", false), "refs%2Fpr%2F1");
  EXPECT_EQ(PercentEncoded("\xc3\xa4", true), "%C3%A4");
}

}  // namespace
}  // namespace lamina
