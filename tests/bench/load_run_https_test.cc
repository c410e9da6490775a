// The load over https: the same records and limits of time, and whose certificate is believed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "bench/serve/load_run.h"
#include "tests/support/certificates.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/timed_server.h"
#include "tests/support/tls_server.h"

namespace lamina::testing {
namespace load_run_https_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

TlsAnswer TokensOverTls(bool keep) {
  TlsAnswer answer;
  for (const TimedPiece& piece : Tokens(4, milliseconds(0), milliseconds(0)).pieces)
    answer.bytes += piece.bytes;
  answer.keep = keep;
  return answer;
}

class LoadRunHttps : public ::testing::Test {
 protected:
  // Each is sent `gap_seconds` after the one before.
  static std::vector<LoadRequest> Requests(int count, double gap_seconds = 0) {
    std::vector<LoadRequest> requests;
    for (int i = 0; i < count; ++i) requests.push_back({gap_seconds * i, "{}", 5, 4});
    return requests;
  }
  LoadOptions Trusting(const TestCa& ca) const {
    LoadOptions options;
    options.ca_file = ca.path();
    return options;
  }
  // Of the only request of a run.
  RequestRecord Ask(const std::string& url, const LoadOptions& options) const {
    const Result<LoadResult> result = RunLoad(*HttpUrl::Parse(url), Requests(1), options);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->records.at(0) : RequestRecord();
  }
  RequestRecord Ask(const std::string& url) const { return Ask(url, Trusting(ca_)); }

  const TemporaryFolder folder_;
  const TestCa ca_{folder_.path()};
};

TEST_F(LoadRunHttps, ConnectionsAreKept) {
  const TlsServer server(ca_.Issue("server"),
                         [](const TlsRequest&) { return TokensOverTls(/*keep=*/true); });
  LoadOptions options = Trusting(ca_);
  options.max_concurrency = 2;
  options.api_key = "secret";
  const Result<LoadResult> result =
      RunLoad(*HttpUrl::Parse(server.url() + "/base"), Requests(20), options);
  ASSERT_TRUE(result.ok()) << result.status();
  for (const RequestRecord& record : result->records) {
    ASSERT_TRUE(record.ok()) << record.error_kind << ": " << record.error;
    EXPECT_EQ(record.output_tokens, 4);
    EXPECT_GT(record.ttft, 0);
  }
  EXPECT_EQ(result->num_connections, 2);
  ASSERT_EQ(server.requests().size(), 20u);
  EXPECT_EQ(server.requests()[0].target, "/base/v1/completions");
  EXPECT_EQ(server.requests()[0].Header("authorization"), "Bearer secret");
}

TEST_F(LoadRunHttps, AConnectionThatTheServerClosedWhileIdleIsReplaced) {
  const TlsServer server(ca_.Issue("server"),
                         [](const TlsRequest&) { return TokensOverTls(/*keep=*/false); });
  const Result<LoadResult> result =
      RunLoad(*HttpUrl::Parse(server.url()), Requests(5, 0.05), Trusting(ca_));
  ASSERT_TRUE(result.ok()) << result.status();
  for (const RequestRecord& record : result->records)
    EXPECT_TRUE(record.ok()) << record.error_kind << ": " << record.error;
  EXPECT_EQ(result->num_connections, 5);
}

TEST_F(LoadRunHttps, TheEndOfTheAllowedTimeEndsEverything) {
  const std::string half = kStreamHead + Chunk(kTokenEvent);
  const TlsServer server(ca_.Issue("server"), [&](const TlsRequest&) {
    return TlsAnswer{half, /*hang=*/true};
  });
  LoadOptions options = Trusting(ca_);
  options.timeout = milliseconds(300);
  EXPECT_EQ(Ask(server.url(), options).error_kind, "timed out");
  // Waits for the end of an HTTP request.
  const TimedServer silent([](const std::string&) { return Plain(""); });
  const RequestRecord unanswered =
      Ask("https://127.0.0.1:" + std::to_string(silent.port()), options);
  EXPECT_EQ(unanswered.error_kind, "timed out");
  EXPECT_THAT(unanswered.error, AllOf(HasSubstr("TLS handshake"), HasSubstr("127.0.0.1:")));
}

TEST_F(LoadRunHttps, AnAnswerThatIsCutOffIsLost) {
  const TlsServer server(ca_.Issue("server"), [](const TlsRequest&) {
    return TlsAnswer{kStreamHead + Chunk(kTokenEvent)};
  });
  const RequestRecord cut = Ask(server.url());
  EXPECT_EQ(cut.error_kind, "connection lost");
  EXPECT_THAT(cut.error, HasSubstr("the server closed the connection"));
}

TEST_F(LoadRunHttps, NobodyElseIsAsked) {
  const TlsServer server(ca_.Issue("server"),
                         [](const TlsRequest&) { return TokensOverTls(/*keep=*/false); });
  const TlsServer misnamed(ca_.Issue("elsewhere", {.names = "DNS:elsewhere.test"}),
                           [](const TlsRequest&) { return TokensOverTls(/*keep=*/false); });
  ASSERT_TRUE(Ask(server.url()).ok());

  const RequestRecord foreign = Ask(server.url(), Trusting(TestCa(folder_.path(), "other")));
  EXPECT_EQ(foreign.error_kind, "TLS handshake failed");
  EXPECT_THAT(foreign.error, AllOf(HasSubstr("certificate of 127.0.0.1:"), HasSubstr("is refused"),
                                   HasSubstr("--ca")));
  EXPECT_EQ(Ask(server.url(), {}).error_kind, "TLS handshake failed") << "no system trusts this CA";
  const RequestRecord other_host = Ask(misnamed.url());
  EXPECT_EQ(other_host.error_kind, "TLS handshake failed");
  EXPECT_THAT(other_host.error, HasSubstr("IP address mismatch"));
  EXPECT_EQ(server.requests().size(), 1u);
  EXPECT_TRUE(misnamed.requests().empty());

  LoadOptions options;
  options.ca_file = folder_ / "nowhere.pem";
  const Result<LoadResult> unread = RunLoad(*HttpUrl::Parse(server.url()), Requests(1), options);
  EXPECT_EQ(unread.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(unread.status().message(), HasSubstr("nowhere.pem"));
}

// Whoever ends a run does not wait for answers, nor for handshakes.
TEST_F(LoadRunHttps, ARunEndsEarly) {
  std::atomic<int> num_asked = 0;
  const TlsServer server(ca_.Issue("server"), [&](const TlsRequest&) {
    return ++num_asked == 1 ? TokensOverTls(/*keep=*/true)
                            : TlsAnswer{kStreamHead + Chunk(kTokenEvent), /*hang=*/true};
  });
  LoadOptions options = Trusting(ca_);
  options.max_concurrency = 2;
  options.ends_when = [&] { return num_asked >= 3; };
  const Result<LoadResult> result = RunLoad(*HttpUrl::Parse(server.url()), Requests(10), options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->ended_early);
  EXPECT_EQ(std::ranges::count_if(result->records, &RequestRecord::ok), 1);
  EXPECT_EQ(std::ranges::count_if(result->records, &RequestRecord::interrupted), 2);
  EXPECT_EQ(result->num_unsent, 7u);
}

}  // namespace load_run_https_test
}  // namespace lamina::testing
