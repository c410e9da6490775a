// Downloads from a hub on the loopback, with its certificate from a CA of the test's own.
#include "hub/pull.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "base/text_file.h"
#include "hub/find_model.h"
#include "tests/support/test_hub.h"

namespace lamina::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Random, so that no part of it is like another.
std::string Bytes(size_t count) {
  std::string bytes(count, '\0');
  uint32_t state = 1;
  for (char& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<char>(state >> 24);
  }
  return bytes;
}

class PullTest : public ::testing::Test {
 protected:
  PullTest() {
    hub_.files["config.json"] = {"{\"a\": 1}\n"};
    hub_.files["model.safetensors"] = {Bytes(300'000), /*is_large=*/true};
    hub_.files["pytorch_model.bin"] = {"not wanted", true};
    hub_.files["tokenizer.json"] = {"{}"};
    options_.name = *HubName::Parse("org/name");
    options_.hub.url = hub_.url();
    options_.hub.https.ca_file = hub_.ca();
    options_.hub.https.silence_timeout = std::chrono::milliseconds(500);
    options_.hub.retry_pause = std::chrono::milliseconds(1);
    options_.cache = HubCache(folder_ / "hub");
  }

  std::string Repository() const { return options_.cache.RepositoryFolder(options_.name); }
  std::string Snapshot() const { return Repository() + "/snapshots/" + kHubCommit; }
  std::string Blob(const std::string& path) const {
    const TestHub::File& file = hub_.files.at(path);
    return Repository() + "/blobs/" +
           (file.is_large ? TestHub::Sha256(file.content) : TestHub::GitSha1(file.content));
  }
  std::string Content(const std::string& path) const {
    return ReadTextFile(Snapshot() + "/" + path).value();
  }
  // Whether anything of a model is there to be served.
  bool IsServable() const { return FindModel("org/name", options_.cache).ok(); }

  const TemporaryFolder folder_;
  TestHub hub_{"org/name"};
  PullOptions options_;
};

TEST_F(PullTest, MakesTheLayoutOfHuggingFace) {
  const Result<PulledModel> pulled = Pull(options_);
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(pulled->commit, kHubCommit);
  EXPECT_EQ(pulled->num_files, 3u);
  EXPECT_EQ(pulled->downloaded_bytes, pulled->num_bytes);
  EXPECT_THAT(FilesBelow(Snapshot()),
              ElementsAre("config.json", "model.safetensors", "tokenizer.json"));
  for (const std::string path : {"config.json", "model.safetensors", "tokenizer.json"}) {
    EXPECT_EQ(Content(path), hub_.files[path].content);
    EXPECT_EQ(Repository() + fs::read_symlink(Snapshot() + "/" + path).string().substr(5),
              Blob(path));  // "../.."
  }
  EXPECT_EQ(ReadTextFile(Repository() + "/refs/main").value(), kHubCommit);
  EXPECT_EQ(FindModel("org/name", options_.cache).value(), Snapshot());
}

TEST_F(PullTest, AnotherPullDownloadsNothing) {
  ASSERT_TRUE(Pull(options_).ok());
  const size_t before = hub_.content_requests().size();
  const Result<PulledModel> again = Pull(options_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->downloaded_bytes, 0);
  EXPECT_EQ(hub_.content_requests().size(), before);
}

TEST_F(PullTest, FoldersPagesAndNamesWithSpaces) {
  hub_.files_per_page = 1;
  hub_.files["a/b/x y+%.txt"] = {"text"};
  hub_.files["empty.txt"] = {""};
  options_.include = {"*"};
  options_.name.revision = "v1.0";
  const Result<PulledModel> pulled = Pull(options_);
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(pulled->num_files, 6u);
  EXPECT_EQ(Content("a/b/x y+%.txt"), "text");
  EXPECT_EQ(Content("empty.txt"), "");
  EXPECT_EQ(ReadTextFile(Repository() + "/refs/v1.0").value(), kHubCommit);
  EXPECT_FALSE(fs::exists(Repository() + "/refs/main"));
}

TEST_F(PullTest, ACommitNeedsNoRevision) {
  options_.name.revision = kHubCommit;
  ASSERT_TRUE(Pull(options_).ok());
  EXPECT_FALSE(fs::exists(Repository() + "/refs"));
  EXPECT_EQ(FindModel(std::string("org/name@") + kHubCommit, options_.cache).value(), Snapshot());
}

TEST_F(PullTest, TheTokenGoesToTheHubOnly) {
  options_.hub.token = "hf_secret";
  ASSERT_TRUE(Pull(options_).ok());
  for (const TlsRequest& request : hub_.requests())
    EXPECT_EQ(request.Header("authorization"), "Bearer hf_secret");
  ASSERT_FALSE(hub_.content_requests().empty());
  for (const TlsRequest& request : hub_.content_requests())
    EXPECT_EQ(request.Header("authorization"), "");
  for (const std::string& file : FilesBelow(folder_.path()))
    EXPECT_THAT(ReadTextFile(folder_ / file).value(), Not(HasSubstr("hf_secret")));
}

TEST_F(PullTest, ATokenCannotAddHeaders) {
  options_.hub.token = "x\r\nEvil: y";
  const Status status = Pull(options_).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), Not(HasSubstr("Evil")));
  EXPECT_THAT(hub_.requests(), IsEmpty());
}

TEST_F(PullTest, GoesOnBehindACutConnection) {
  std::atomic<int> cuts = 0;
  hub_.AnswerContentInstead([&](const TlsRequest& request) -> std::optional<TlsAnswer> {
    if (cuts >= 20) return std::nullopt;
    ++cuts;
    // More cuts than tries without progress are allowed: each brings 10,000 bytes.
    const std::string range = request.Header("range");
    const size_t first = range.empty() ? 0 : std::stoul(range.substr(6));
    const std::string& content = hub_.files["model.safetensors"].content;
    TlsAnswer answer = TlsAnswer::Http(
        range.empty() ? 200 : 206, content.substr(first),
        range.empty() ? ""
                      : "Content-Range: bytes " + std::to_string(first) + "-299999/300000\r\n");
    answer.bytes.resize(answer.bytes.size() - (content.size() - first) + 10'000);
    return answer;
  });
  const Result<PulledModel> pulled = Pull(options_);
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(Content("model.safetensors"), hub_.files["model.safetensors"].content);
  EXPECT_EQ(hub_.content_requests()[1].Header("range"), "bytes=10000-");
}

TEST_F(PullTest, GoesOnWhereAnEarlierProcessEnded) {
  const std::string& content = hub_.files["model.safetensors"].content;
  fs::create_directories(Repository() + "/blobs");
  WriteFile(Blob("model.safetensors") + ".incomplete", content.substr(0, 123'456));
  const Result<PulledModel> pulled = Pull(options_);
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(Content("model.safetensors"), content);
  ASSERT_EQ(hub_.content_requests().size(), 1u);
  EXPECT_EQ(hub_.content_requests()[0].Header("range"), "bytes=123456-");
}

TEST_F(PullTest, WrongBytesOfAnEarlierProcessAreFetchedAgain) {
  const std::string& content = hub_.files["model.safetensors"].content;
  for (const size_t left : {size_t{1000}, content.size(), content.size() + 1}) {
    fs::remove_all(Repository());
    fs::create_directories(Repository() + "/blobs");
    WriteFile(Blob("model.safetensors") + ".incomplete", std::string(left, 'x'));
    const Result<PulledModel> pulled = Pull(options_);
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    EXPECT_EQ(Content("model.safetensors"), content);
  }
}

TEST_F(PullTest, AServerWithoutRangesSendsTheWholeFile) {
  hub_.has_ranges = false;
  const std::string& content = hub_.files["model.safetensors"].content;
  fs::create_directories(Repository() + "/blobs");
  WriteFile(Blob("model.safetensors") + ".incomplete", content.substr(0, 1000));
  ASSERT_TRUE(Pull(options_).ok());
  EXPECT_EQ(Content("model.safetensors"), content);
}

TEST_F(PullTest, ABusyHubIsAskedAgain) {
  std::atomic<int> refusals = 3;
  hub_.AnswerInstead([&](const TlsRequest&) -> std::optional<TlsAnswer> {
    return refusals-- > 0 ? std::optional(TlsAnswer::Http(503, "")) : std::nullopt;
  });
  EXPECT_TRUE(Pull(options_).ok());
  hub_.AnswerInstead([&](const TlsRequest&) { return TlsAnswer::Http(429, ""); });
  const Status status = Pull(options_).status();
  EXPECT_EQ(status.code(), StatusCode::kTryAgain);
  EXPECT_THAT(status.message(), HasSubstr("429"));
}

TEST_F(PullTest, SeveralAtOnceDownloadEachFileOnce) {
  std::vector<std::thread> pulls;
  std::vector<Status> outcomes(6);
  for (Status& outcome : outcomes) pulls.emplace_back([&] { outcome = Pull(options_).status(); });
  for (std::thread& pull : pulls) pull.join();
  for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome;
  EXPECT_EQ(hub_.content_requests().size(), 1u);
  EXPECT_EQ(Content("model.safetensors"), hub_.files["model.safetensors"].content);
}

TEST_F(PullTest, SeveralFilesComeAtATime) {
  hub_.files["another.safetensors"] = {"b" + Bytes(1000), /*is_large=*/true};
  std::atomic<int> asked = 0;
  std::atomic<bool> together = false;
  hub_.AnswerContentInstead([&](const TlsRequest&) -> std::optional<TlsAnswer> {
    ++asked;
    const Deadline deadline = Deadline::After(std::chrono::milliseconds(400));
    while (asked < 2 && !deadline.Passed()) std::this_thread::yield();
    if (!deadline.Passed()) together = true;
    return std::nullopt;
  });
  ASSERT_TRUE(Pull(options_).ok());
  EXPECT_TRUE(together);
}

TEST_F(PullTest, AFileThatFailsStopsTheOthers) {
  options_.hub.max_retries = 1;
  hub_.files["another.safetensors"] = {"b" + Bytes(1000), /*is_large=*/true};
  hub_.AnswerContentInstead([&](const TlsRequest& request) -> std::optional<TlsAnswer> {
    if (request.target == "/another.safetensors") return TlsAnswer::Http(410, "");
    return TlsAnswer{"", /*hang=*/true, ""};
  });
  const Status status = Pull(options_).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("410"));
  EXPECT_FALSE(IsServable());
}

// As Hugging Face's client locks it.
TEST_F(PullTest, WaitsForWhoeverHasTheLock) {
  fs::create_directories(options_.cache.LockFolder(options_.name));
  const std::string path = options_.cache.LockFolder(options_.name) + "/" +
                           fs::path(Blob("model.safetensors")).filename().string() + ".lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  std::atomic<bool> waits = false, done = false;
  options_.on_progress = [&](const PullProgress& progress) {
    if (progress.path == "model.safetensors") waits = true;
  };
  std::thread pull([&] {
    EXPECT_TRUE(Pull(options_).ok());
    done = true;
  });
  const Deadline deadline = Deadline::After(std::chrono::seconds(20));
  while (!waits && deadline.Remaining() > Clock::duration::zero()) std::this_thread::yield();
  EXPECT_TRUE(waits);
  EXPECT_FALSE(done);
  EXPECT_THAT(hub_.content_requests(), IsEmpty());
  // The other process has downloaded it meanwhile.
  WriteFile(Blob("model.safetensors"), hub_.files["model.safetensors"].content);
  close(fd);
  pull.join();
  EXPECT_THAT(hub_.content_requests(), IsEmpty());
}

TEST_F(PullTest, ProgressEndsWithAllBytes) {
  PullProgress last;
  int64_t before = 0;
  options_.on_progress = [&](const PullProgress& progress) {
    EXPECT_GE(progress.done_bytes, before);
    before = progress.done_bytes;
    last = progress;
  };
  const Result<PulledModel> pulled = Pull(options_);
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(last.number, 3u);
  EXPECT_EQ(last.done_bytes, pulled->num_bytes);
  EXPECT_EQ(last.total_bytes, pulled->num_bytes);
}

TEST_F(PullTest, SaysWhatToDoAboutARefusal) {
  const auto refused = [&](int status, const std::string& headers, const std::string& token) {
    hub_.AnswerInstead(
        [&, status, headers](const TlsRequest&) { return TlsAnswer::Http(status, "{}", headers); });
    options_.hub.token = token;
    return Pull(options_).status();
  };
  const Status gated = refused(403, "X-Error-Code: GatedRepo\r\nX-Error-Message: ask\r\n", "");
  EXPECT_EQ(gated.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(gated.message(), HasSubstr("accept its conditions at " + hub_.url() + "/org/name"));
  EXPECT_THAT(gated.message(), HasSubstr("HF_TOKEN"));
  EXPECT_THAT(gated.message(), HasSubstr("ask"));
  const Status absent = refused(401, "X-Error-Code: RepoNotFound\r\n", "");
  EXPECT_EQ(absent.code(), StatusCode::kNotFound);
  EXPECT_THAT(absent.message(), HasSubstr("check the name"));
  const Status revision = refused(404, "X-Error-Code: RevisionNotFound\r\n", "");
  EXPECT_EQ(revision.code(), StatusCode::kNotFound);
  EXPECT_THAT(revision.message(), HasSubstr("no revision main"));
  const Status token = refused(401, "", "hf_wrong");
  EXPECT_EQ(token.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(token.message(), HasSubstr("refuses the token"));
  EXPECT_THAT(token.message(), Not(HasSubstr("hf_wrong")));
  EXPECT_EQ(refused(418, "", "").code(), StatusCode::kCorrupt);
  EXPECT_FALSE(fs::exists(options_.cache.root()));
}

TEST_F(PullTest, NoHubThere) {
  options_.hub.url = "https://127.0.0.1:1";
  options_.hub.max_retries = 1;
  const Status status = Pull(options_).status();
  EXPECT_EQ(status.code(), StatusCode::kPeerLost);
  EXPECT_THAT(status.message(), HasSubstr("127.0.0.1:1"));
}

TEST_F(PullTest, AFolderThatCannotBeWritten) {
  WriteFile(folder_ / "hub", "a file");
  const Status status = Pull(options_).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("HF_HOME"));
}

TEST_F(PullTest, WhatDoesNotFitOnTheDiskIsNotBegun) {
  const Status status = CheckDiskSpace(folder_.path(), int64_t{1} << 60);
  EXPECT_EQ(status.code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(status.message(), HasSubstr("HF_HOME"));
  EXPECT_TRUE(CheckDiskSpace(folder_.path(), 1).ok());
}

// What follows is a hub that means no good.

TEST_F(PullTest, ACertificateOfAnotherCaIsRefused) {
  const TemporaryFolder other;
  options_.hub.https.ca_file = TestCa(other.path()).path();
  const Status status = Pull(options_).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("--ca"));
  EXPECT_THAT(hub_.requests(), IsEmpty());
  options_.hub.https.ca_file = "";  // the system does not trust the test's CA either
  EXPECT_EQ(Pull(options_).status().code(), StatusCode::kInvalidArgument);
  options_.hub.https.ca_file = folder_ / "nothing.pem";
  EXPECT_THAT(Pull(options_).status().message(), HasSubstr("nothing.pem"));
}

TEST_F(PullTest, ACertificateForAnotherHostOrTimeIsRefused) {
  const TemporaryFolder folder;
  const TestCa ca(folder.path());
  options_.hub.https.ca_file = ca.path();
  for (const CertificateWishes& wishes :
       {CertificateWishes{.names = "DNS:elsewhere"}, CertificateWishes{.names = "IP:127.0.0.2"},
        CertificateWishes{.names = ""}, CertificateWishes{.first_day = -9, .last_day = -2},
        CertificateWishes{.usage = "clientAuth"}}) {
    const TlsServer server(ca.Issue("x", wishes),
                           [](const TlsRequest&) { return TlsAnswer::Http(200, "{}"); });
    options_.hub.url = server.url();
    const Status status = Pull(options_).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(status.message(), HasSubstr("certificate"));
    EXPECT_THAT(server.requests(), IsEmpty());
  }
}

TEST_F(PullTest, PathsThatLeadOutAreRefused) {
  for (const std::string path : {"../../x", "/tmp/x", "a/../../../../x"}) {
    hub_.files = {{path, {"evil"}}, {"config.json", {"{}"}}};
    options_.include = {"*"};
    const Status status = Pull(options_).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(FilesBelow(folder_.path()), IsEmpty());
  }
}

TEST_F(PullTest, WrongBytesNeverGetAName) {
  hub_.AnswerContentInstead([&](const TlsRequest&) {
    std::string content = hub_.files["model.safetensors"].content;
    content[5] ^= 1;
    return TlsAnswer::Http(200, content);
  });
  const Status status = Pull(options_).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("checksum"));
  EXPECT_FALSE(fs::exists(Blob("model.safetensors")));
  EXPECT_FALSE(fs::exists(Blob("model.safetensors") + ".incomplete"));
  EXPECT_FALSE(IsServable());
}

TEST_F(PullTest, AnEndlessBodyFillsNoDisk) {
  hub_.AnswerContentInstead([](const TlsRequest&) {
    return TlsAnswer{"HTTP/1.1 200 OK\r\n\r\n", false, std::string(100'000, 'x')};
  });
  const Status status = Pull(options_).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("more than the 300000 bytes"));
  EXPECT_LE(fs::file_size(Blob("model.safetensors") + ".incomplete"), 300'000u);
  EXPECT_FALSE(IsServable());
}

TEST_F(PullTest, AnEndlessListFillsNoMemory) {
  hub_.AnswerInstead([](const TlsRequest&) {
    return TlsAnswer{"HTTP/1.1 200 OK\r\n\r\n", false, std::string(100'000, '[')};
  });
  EXPECT_EQ(Pull(options_).status().code(), StatusCode::kOutOfSpace);
  hub_.AnswerInstead([](const TlsRequest&) {
    return TlsAnswer{"HTTP/1.1 200 OK\r\n", false, "X-Header: " + std::string(1000, 'x') + "\r\n"};
  });
  EXPECT_EQ(Pull(options_).status().code(), StatusCode::kCorrupt);
}

TEST_F(PullTest, PagesThatDoNotEndAreLeft) {
  hub_.AnswerInstead([&](const TlsRequest& request) -> std::optional<TlsAnswer> {
    if (request.target.find("/tree/") == std::string::npos) return std::nullopt;
    return TlsAnswer::Http(200, "[]", "Link: <" + hub_.url() + "/tree/>; rel=\"next\"\r\n");
  });
  EXPECT_EQ(Pull(options_).status().code(), StatusCode::kCorrupt);
  hub_.AnswerInstead([&](const TlsRequest& request) -> std::optional<TlsAnswer> {
    if (request.target.find("/tree/") == std::string::npos) return std::nullopt;
    return TlsAnswer::Http(200, "[]", "Link: <https://127.0.0.1:1/x>; rel=\"next\"\r\n");
  });
  EXPECT_THAT(Pull(options_).status().message(), HasSubstr("another host"));
}

TEST_F(PullTest, RedirectsEnd) {
  for (const std::string& location :
       {hub_.url() + "/again", std::string("/again"), std::string("http://127.0.0.1:1/plain"),
        std::string("file:///etc/passwd"), std::string()}) {
    hub_.AnswerInstead([&](const TlsRequest&) {
      return TlsAnswer::Http(302, "", location.empty() ? "" : "Location: " + location + "\r\n");
    });
    const Status status = Pull(options_).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << location;
    EXPECT_THAT(status.message(), HasSubstr("redirect"));
  }
}

TEST_F(PullTest, OtherBytesThanAskedForAreRefused) {
  fs::create_directories(Repository() + "/blobs");
  for (const std::string range :
       {"bytes 0-299999/300000", "bytes 1000-299999/400000", "bytes */300000", "", "x"}) {
    WriteFile(Blob("model.safetensors") + ".incomplete",
              hub_.files["model.safetensors"].content.substr(0, 1000));
    hub_.AnswerContentInstead([&](const TlsRequest&) {
      return TlsAnswer::Http(206, std::string(299'000, 'x'), "Content-Range: " + range + "\r\n");
    });
    EXPECT_EQ(Pull(options_).status().code(), StatusCode::kCorrupt) << range;
    EXPECT_FALSE(fs::exists(Blob("model.safetensors")));
  }
}

TEST_F(PullTest, ASilentServerIsLeft) {
  options_.hub.max_retries = 1;
  hub_.AnswerContentInstead([](const TlsRequest&) { return TlsAnswer{"", /*hang=*/true, ""}; });
  EXPECT_EQ(Pull(options_).status().code(), StatusCode::kTimeout);
  hub_.AnswerContentInstead([](const TlsRequest&) {
    return TlsAnswer{"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\nabc", true, ""};
  });
  EXPECT_EQ(Pull(options_).status().code(), StatusCode::kTimeout);
  EXPECT_FALSE(IsServable());
}

TEST_F(PullTest, WhatIsNoHttpIsCorrupt) {
  hub_.AnswerInstead([](const TlsRequest&) { return TlsAnswer{"SSH-2.0-OpenSSH_9.2\r\n\r\n"}; });
  EXPECT_EQ(Pull(options_).status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace lamina::testing
