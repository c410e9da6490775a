// `lamina bench dollar` as a user runs it, ended before its end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "manager/process.h"
#include "tests/support/paths.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/timed_server.h"

namespace lamina::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string TextOfFile(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path).rdbuf();
  return bytes.str();
}

// The JSON in a page; discarded if there is none, or only half of it.
json RawDataOf(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"raw\">";
  const size_t begin = page.find(open);
  if (begin == std::string::npos) return json::parse("", nullptr, false);
  const size_t end = page.find("</script>", begin);
  return json::parse(page.substr(begin + open.size(), end - begin - open.size()), nullptr, false);
}

// A sweep of three points on a server that answers the first point at once, and takes seconds for
// what comes then.
class EndedSweep : public ::testing::Test {
 protected:
  void Start(int num_fast) {
    num_fast_ = num_fast;
    WriteFile(folder_ / "s.yaml",
              "version: 1\nload: {batch: [2, 3, 4], context: [5], output_tokens: 4}\nrepeats: "
              "1\nshapes:\n"
              "- {name: there, url: '" +
                  server_.url_text() + "'}\n");
    ChildProcess::Options options;
    options.argv = {BinPath("/lamina"), "bench", "dollar", folder_ / "s.yaml", "--html", page_};
    options.log_path = log_;
    Result<ChildProcess> started = ChildProcess::Spawn(options);
    ASSERT_TRUE(started.ok()) << started.status();
    bench_.emplace(*std::move(started));
  }

  bool AwaitAsked(int count) const {
    return AwaitTrue([&] { return num_asked_ >= count; },
                     Deadline::After(std::chrono::seconds(30)));
  }

  const TemporaryFolder folder_;
  const std::string page_ = folder_ / "r.html", log_ = folder_ / "log";
  std::atomic<int> num_asked_{0}, num_fast_{0};
  const TimedServer server_{[this](const std::string& request) {
    if (request.starts_with("GET /v1/models")) {
      const std::string body = R"({"data":[{"id":"m"}]})";
      return Plain("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) +
                   "\r\n\r\n" + body);
    }
    if (request.starts_with("GET"))
      return Plain("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    return ++num_asked_ <= num_fast_ ? Tokens(4, milliseconds(0), milliseconds(1))
                                     : Tokens(2, milliseconds(0), std::chrono::seconds(4));
  }};
  std::optional<ChildProcess> bench_;
};

TEST_F(EndedSweep, ThePageHasThePointsThatWereMeasured) {
  for (const int signal : {SIGINT, SIGTERM}) {
    num_asked_ = 0;
    ASSERT_NO_FATAL_FAILURE(Start(2 + 2));  // a warm-up and a run of two
    ASSERT_TRUE(AwaitAsked(4 + 3)) << TextOfFile(log_);
    const json so_far = RawDataOf(TextOfFile(page_));
    ASSERT_FALSE(so_far.is_discarded()) << "no page while the second point is measured";
    EXPECT_EQ(so_far["points"].size(), 1u);
    EXPECT_EQ(so_far["points_not_measured"], 2);
    const TimePoint signalled = Clock::now();
    bench_->Kill(signal);
    ASSERT_TRUE(bench_->Wait(Deadline::After(std::chrono::seconds(30))));
    EXPECT_LT(SecondsSince(signalled), 3) << "it waits for answers";
    EXPECT_EQ(bench_->exit_description(), "exited with status 130") << TextOfFile(log_);
    EXPECT_THAT(TextOfFile(log_),
                HasSubstr("interrupted: the report has what was measured so far"));
    const json report = RawDataOf(TextOfFile(page_));
    ASSERT_FALSE(report.is_discarded());
    ASSERT_EQ(report["points"].size(), 1u);
    EXPECT_EQ(report["points"][0]["batch"], 2);
    EXPECT_EQ(report["points"][0]["runs"][0]["output_tokens"], 8);
    EXPECT_EQ(report["points_not_measured"], 2);
    EXPECT_THAT(report["notes"].dump(), HasSubstr("1 of the sweep's 3 points"));
    std::remove(page_.c_str());
  }
}

TEST_F(EndedSweep, BeforeTheFirstPointThereIsNoPage) {
  ASSERT_NO_FATAL_FAILURE(Start(0));
  ASSERT_TRUE(AwaitAsked(2)) << TextOfFile(log_);
  bench_->Kill(SIGINT);
  ASSERT_TRUE(bench_->Wait(Deadline::After(std::chrono::seconds(30))));
  EXPECT_EQ(bench_->exit_description(), "exited with status 130") << TextOfFile(log_);
  EXPECT_THAT(TextOfFile(log_), HasSubstr("no point was measured"));
  EXPECT_FALSE(std::ifstream(page_).good());
}

}  // namespace
}  // namespace lamina::testing
