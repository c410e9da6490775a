// HTTPS: whom clients believe, and what becomes of those who speak something else. That everything
// else is as without TLS is what api.over_https shows (tests/CMakeLists.txt).
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "api/http_client.h"
#include "api/renewed_certificate.h"
#include "tests/support/certificates.h"
#include "tests/support/http_fixture.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace https_test {

using std::chrono::seconds;
using ::testing::HasSubstr;

class Https : public HttpTest {
 protected:
  Https() { UseCertificate(ServerCertificate()); }

  void UseCertificate(const TlsFiles& files) {
    options_.ssl_certfile = files.certificate;
    options_.ssl_keyfile = files.key;
  }
  std::string Url(const std::string& host = "127.0.0.1") const {
    return "https://" + host + ":" + std::to_string(port());
  }
  Result<HttpClient> Client(const std::string& url, const std::string& ca) const {
    return HttpClient::Create(url, {.api_key = "",
                                    .ca_file = ca,
                                    .connect_timeout = seconds(30),
                                    .silence_timeout = seconds(30)});
  }
  // Ok if the server is asked for /health and answers 200.
  Status Ask(const std::string& url, const std::string& ca) const {
    const Result<HttpClient> client = Client(url, ca);
    if (!client.ok()) return client.status();
    const Result<HttpResponse> response = client->Get("/health");
    if (!response.ok()) return response.status();
    return response->status == 200 ? OkStatus() : Status(InternalError(response->body));
  }
};

TEST_F(Https, AnswersWholeAndInPieces) {
  StartServer();
  const Result<HttpClient> client = Client(Url() + "/v1", ServerCertificate().ca);
  ASSERT_TRUE(client.ok()) << client.status();
  const Result<HttpResponse> whole = client->PostJson("/v1/completions", R"({"prompt": "x"})");
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->status, 200);
  std::vector<std::string> events;
  const Result<HttpResponse> streamed = client->PostForEvents(
      "/v1/completions", R"({"prompt": "x", "stream": true})", [&](std::string_view data) {
        events.emplace_back(data);
        return true;
      });
  ASSERT_TRUE(streamed.ok()) << streamed.status();
  EXPECT_EQ(events.back(), "[DONE]");
  // Many records, in both directions.
  const std::string blanks(4 << 20, ' ');
  EXPECT_EQ(client->PostJson("/v1/completions", R"({"prompt": "x"})" + blanks)->status, 200);
  EXPECT_TRUE(Ask(Url("localhost"), ServerCertificate().ca).ok());
}

TEST_F(Https, OnlyTheCertificateOfTheHostAndOfATrustedCaIsBelieved) {
  const TemporaryFolder folder;
  const TestCa other(folder.path(), "other");
  UseCertificate(TestCa(folder.path(), "own").Issue("elsewhere", {.names = "DNS:elsewhere.test"}));
  StartServer();
  const Status foreign = Ask(Url(), other.path());
  EXPECT_EQ(foreign.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(foreign.message(), HasSubstr("--ca"));
  EXPECT_EQ(Ask(Url(), "").code(), StatusCode::kInvalidArgument) << "no system trusts this CA";
  const Status misnamed = Ask(Url(), folder / "own.pem");
  EXPECT_EQ(misnamed.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(misnamed.message(), HasSubstr("IP address mismatch"));
  EXPECT_EQ(Client(Url(), folder / "nowhere.pem").status().code(), StatusCode::kInvalidArgument);
  const Result<HttpClient> believing =
      HttpClient::Create(Url(), {.api_key = "", .ca_file = "", .check_certificate = false});
  EXPECT_EQ(believing->Get("/health")->status, 200);
}

TEST_F(Https, FilesThatCannotBeUsedAreNamed) {
  const TemporaryFolder folder;
  const TlsFiles one = TestCa(folder.path()).Issue("one"), two = TestCa(folder.path()).Issue("two");
  const auto refusal = [&](const std::string& certificate, const std::string& key) {
    ServerOptions options;
    options.port = 0;
    options.ssl_certfile = certificate;
    options.ssl_keyfile = key;
    Metrics metrics("tiny");
    return HttpServer::Create(options, {}, metrics).status().message();
  };
  EXPECT_THAT(refusal(one.certificate, ""), HasSubstr("--ssl-keyfile"));
  EXPECT_THAT(refusal("", one.key), HasSubstr("--ssl-certfile"));
  EXPECT_THAT(refusal(one.certificate, two.key), HasSubstr("does not belong"));
  EXPECT_THAT(refusal(folder / "none.pem", one.key), HasSubstr("none.pem"));
  EXPECT_THAT(refusal(one.key, one.key), HasSubstr("PEM"));
  chmod(one.key.c_str(), 0644);
  EXPECT_THAT(refusal(one.certificate, one.key), HasSubstr(one.key));
}

// Files of a certificate that is served, and others' that take their place.
class RenewedFiles {
 public:
  RenewedFiles() {
    PutCertificate(first_);
    PutKey(first_);
  }

  const TlsFiles& first() const { return first_; }
  const TlsFiles& second() const { return second_; }
  const TlsFiles& served() const { return served_; }

  void PutCertificate(const TlsFiles& of) const { Put(of.certificate, served_.certificate); }
  void PutKey(const TlsFiles& of) const { Put(of.key, served_.key); }

 private:
  static void Put(const std::string& from, const std::string& to) {
    namespace fs = std::filesystem;
    fs::copy_file(from, to + ".new", fs::copy_options::overwrite_existing);
    fs::permissions(to + ".new", fs::perms::owner_read | fs::perms::owner_write);
    fs::rename(to + ".new", to);
  }

  const TemporaryFolder first_folder_, second_folder_, folder_;
  const TlsFiles first_ = TestCa(first_folder_.path()).Issue("first"),
                 second_ = TestCa(second_folder_.path()).Issue("second");
  const TlsFiles served_ = {folder_ / "cert.pem", folder_ / "key.pem", ""};
};

TEST(RenewedCertificateTest, ChangesWhenBothFilesHave) {
  const RenewedFiles files;
  auto certificate =
      RenewedCertificate::Load(files.served().certificate, files.served().key).value();
  TimePoint now = Clock::now();
  const auto later = [&] {
    return certificate->Current(now += RenewedCertificate::kCheckInterval);
  };
  const auto first = later();
  EXPECT_EQ(later(), first);
  files.PutKey(files.second());
  EXPECT_EQ(later(), first) << "with a key that is not the certificate's";
  files.PutCertificate(files.second());
  EXPECT_EQ(certificate->Current(now), first) << "before the files are looked at again";
  const auto second = later();
  EXPECT_NE(second, first);
  EXPECT_EQ(later(), second);
  std::filesystem::remove(files.served().certificate);
  EXPECT_EQ(later(), second) << "without a file";
}

TEST_F(Https, NewConnectionsShowTheRenewedCertificate) {
  const RenewedFiles files;
  UseCertificate(files.served());
  StartServer();
  ASSERT_TRUE(Ask(Url(), files.first().ca).ok());
  files.PutKey(files.second());
  files.PutCertificate(files.second());
  const TimePoint deadline = Clock::now() + seconds(30);
  while (!Ask(Url(), files.second().ca).ok()) ASSERT_LT(Clock::now(), deadline);
  EXPECT_FALSE(Ask(Url(), files.first().ca).ok());
}

TEST_F(Https, AServerWithoutTlsIsAskedForByHttp) {
  UseCertificate({});
  StartServer();
  const Status status = Ask(Url(), ServerCertificate().ca);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(),
              ::testing::AllOf(HasSubstr("127.0.0.1:" + std::to_string(port())),
                               HasSubstr("does not speak TLS"), HasSubstr("http://")));
}

TEST_F(Https, WhoSpeaksPlainHttpIsTold) {
  StartServer();
  ClientConnection plain(port());
  plain.SendRequest("POST", "/v1/completions", R"({"prompt": "x"})");
  const ClientResponse response = plain.Receive();
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("https://"));
  EXPECT_TRUE(plain.ReceivedEnd());
  EXPECT_TRUE(engine_->requests().empty());
}

// Each costs no more than its connection, and others are served meanwhile.
TEST_F(Https, HandshakesThatDoNotEndAreCutOff) {
  options_.request_timeout = milliseconds(300);
  StartServer();
  ClientConnection silent(port()), half(port()), garbage(port());
  half.Send(std::string("\x16\x03\x01\x02\x00\x01", 6));  // a ClientHello of 512 bytes begins
  garbage.Send(std::string(1000, '\xff'));
  EXPECT_TRUE(Ask(Url(), ServerCertificate().ca).ok());
  for (ClientConnection* connection : {&silent, &half, &garbage})
    EXPECT_TRUE(connection->ReceivedEnd());
  EXPECT_TRUE(Ask(Url(), ServerCertificate().ca).ok());
}

TEST_F(Https, AClientThatLeavesInTheMiddleOfItsHandshakeOrAnswerFreesItsPlace) {
  options_.max_connections = 4;
  StartServer();
  for (int i = 0; i < 50; ++i) {
    ClientConnection connection(port());
    connection.Send(std::string("\x16\x03\x01\x02\x00\x01", 6).substr(0, 1 + i % 6));
  }
  EXPECT_TRUE(Ask(Url(), ServerCertificate().ca).ok());
  const Result<HttpClient> client = Client(Url(), ServerCertificate().ca);
  for (int i = 0; i < 8; ++i) {
    const Result<HttpResponse> left =
        client->PostForEvents("/v1/completions", R"({"prompt": "x", "stream": true})",
                              [](std::string_view) { return false; });
    EXPECT_TRUE(left.ok()) << left.status();
  }
  EXPECT_TRUE(Ask(Url(), ServerCertificate().ca).ok());
}

}  // namespace https_test
}  // namespace lamina::testing
