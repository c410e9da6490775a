#include "api/http_client.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/cli/fake_programs.h"
#include "tests/support/free_port.h"
#include "tests/support/scripted_server.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

constexpr std::string_view kSlowHost = "slow.test";

// Keeps threads until it is opened, or half a minute is over.
class Gate {
 public:
  void Open() { open_ = true; }
  void Wait() const {
    const Deadline deadline = Deadline::After(std::chrono::seconds(30));
    while (!open_ && !deadline.Passed()) std::this_thread::yield();
  }

 private:
  std::atomic<bool> open_ = false;
};

Gate slow_look_up;

}  // namespace
}  // namespace lamina

// Stands before the system's, which it calls.
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  if (host != nullptr && host == lamina::kSlowHost) {
    lamina::slow_look_up.Wait();
    return EAI_NONAME;
  }
  static const auto system =
      reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  return system(host, service, hints, found);
}

namespace lamina {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

HttpClientOptions Quick() {
  HttpClientOptions options;
  options.connect_timeout = std::chrono::seconds(5);
  options.silence_timeout = milliseconds(300);
  return options;
}

HttpClient ClientOf(const ScriptedServer& server, const HttpClientOptions& options = Quick()) {
  Result<HttpClient> client = HttpClient::Create(server.url() + "/base/", options);
  EXPECT_TRUE(client.ok()) << client.status();
  return *client;
}

const SseParser::OnData kIgnore = [](std::string_view) { return true; };

TEST(HttpClient, RequestsAreWhatServersExpect) {
  std::string seen;
  ScriptedServer server([&](const std::string& request) {
    seen = request;
    return ScriptedAnswer{ScriptedServer::Http(201, "hello")};
  });
  HttpClientOptions options = Quick();
  options.api_key = "secret";
  const Result<HttpResponse> response = ClientOf(server, options).PostJson("/v1/x", R"({"a":1})");
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 201);
  EXPECT_EQ(response->body, "hello");
  EXPECT_THAT(seen, StartsWith("POST /base/v1/x HTTP/1.1\r\n"));
  EXPECT_THAT(seen, HasSubstr("\r\nHost: 127.0.0.1:" + std::to_string(server.port()) + "\r\n"));
  EXPECT_THAT(seen, HasSubstr("\r\nAuthorization: Bearer secret\r\n"));
  EXPECT_THAT(seen, HasSubstr("\r\nContent-Type: application/json\r\n"));
  EXPECT_THAT(seen, HasSubstr("\r\n\r\n{\"a\":1}"));
}

TEST(HttpClient, EveryWayToEndABody) {
  for (const std::string& answer :
       {ScriptedServer::Http(200, "abcdef"), ScriptedServer::Chunked({"ab", "cdef"}),
        std::string("HTTP/1.1 200 OK\r\n\r\nabcdef")}) {
    ScriptedServer server([&](const std::string&) { return ScriptedAnswer{answer}; });
    const Result<HttpResponse> response = ClientOf(server).Get("/");
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->body, "abcdef");
  }
}

TEST(HttpClient, AnEmptyBody) {
  ScriptedServer server(
      [](const std::string&) { return ScriptedAnswer{ScriptedServer::Http(200, "")}; });
  const Result<HttpResponse> response = ClientOf(server).Get("/health");
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(response->body, "");
}

TEST(HttpClient, EventsComeOneByOne) {
  ScriptedServer server([](const std::string&) {
    return ScriptedAnswer{
        ScriptedServer::Chunked({"data: a\n\nda", "ta: b\n\n", "data: [DONE]\n\n"})};
  });
  std::vector<std::string> events;
  const Result<HttpResponse> response =
      ClientOf(server).PostForEvents("/", "{}", [&](std::string_view data) {
        events.emplace_back(data);
        return true;
      });
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(events, (std::vector<std::string>{"a", "b", "[DONE]"}));
  EXPECT_EQ(response->body, "");
}

TEST(HttpClient, AnEventIsDeliveredBeforeTheStreamEnds) {
  ScriptedServer server([](const std::string&) {
    return ScriptedAnswer{ScriptedServer::Chunked({"data: a\n\n"}, false), true};
  });
  int num_events = 0;
  const Result<HttpResponse> response =
      ClientOf(server).PostForEvents("/", "{}", [&](std::string_view) {
        ++num_events;
        return false;
      });
  EXPECT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(num_events, 1);
}

TEST(HttpClient, ARefusedStreamHasABodyAndNoEvents) {
  const std::string body = R"({"error":{"message":"too long","code":400}})";
  ScriptedServer server(
      [&](const std::string&) { return ScriptedAnswer{ScriptedServer::Http(400, body)}; });
  const Result<HttpResponse> response =
      ClientOf(server).PostForEvents("/", "{}", [](std::string_view) {
        ADD_FAILURE();
        return true;
      });
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 400);
  EXPECT_EQ(ErrorMessageOf(*response), "too long");
}

TEST(HttpClient, SilenceEndsTheCall) {
  for (const std::string& answer : {std::string(), std::string("HTTP/1.1 200 OK\r\n"),
                                    ScriptedServer::Chunked({"data: a\n\n"}, false)}) {
    ScriptedServer server([&](const std::string&) { return ScriptedAnswer{answer, true}; });
    const Status status = ClientOf(server).PostForEvents("/", "{}", kIgnore).status();
    EXPECT_EQ(status.code(), StatusCode::kTimeout) << answer;
    EXPECT_THAT(status.message(), HasSubstr("127.0.0.1:" + std::to_string(server.port())));
  }
}

TEST(HttpClient, ACutAnswerIsAnError) {
  for (const std::string& answer :
       {std::string(), std::string("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"),
        ScriptedServer::Chunked({"data: a\n\n"}, false)}) {
    ScriptedServer server([&](const std::string&) { return ScriptedAnswer{answer}; });
    EXPECT_EQ(ClientOf(server).PostForEvents("/", "{}", kIgnore).status().code(),
              StatusCode::kPeerLost)
        << answer;
  }
}

TEST(HttpClient, WhatIsNotHttpIsAnError) {
  ScriptedServer server(
      [](const std::string&) { return ScriptedAnswer{"SSH-2.0-OpenSSH_9.2\r\n\r\n"}; });
  EXPECT_EQ(ClientOf(server).Get("/").status().code(), StatusCode::kCorrupt);
}

// Some servers answer with an alert, others not at all.
TEST(HttpClient, AServerThatSpeaksTlsIsAskedForByHttps) {
  const std::string alert("\x15\x03\x01\x00\x02\x02\x46", 7);
  for (const std::string& answer : {alert, std::string()}) {
    ScriptedServer server([&](const std::string&) { return ScriptedAnswer{answer}; });
    const Status status = ClientOf(server).Get("/").status();
    EXPECT_EQ(status.code(), answer.empty() ? StatusCode::kPeerLost : StatusCode::kCorrupt);
    EXPECT_THAT(status.message(),
                ::testing::AllOf(HasSubstr("127.0.0.1:" + std::to_string(server.port())),
                                 HasSubstr("https://")));
  }
}

TEST(HttpClient, AHugeBodyIsRefused) {
  ScriptedServer server([](const std::string&) {
    return ScriptedAnswer{ScriptedServer::Http(200, std::string(100'000, 'x'))};
  });
  HttpClientOptions options = Quick();
  options.max_body_bytes = 1000;
  EXPECT_EQ(ClientOf(server, options).Get("/").status().code(), StatusCode::kOutOfSpace);
}

TEST(HttpClient, AHugeEventIsRefused) {
  ScriptedServer server([](const std::string&) {
    return ScriptedAnswer{ScriptedServer::Chunked({"data: " + std::string(100'000, 'x')}), true};
  });
  HttpClientOptions options = Quick();
  options.max_body_bytes = 1000;
  const Status status = ClientOf(server, options).PostForEvents("/", "{}", kIgnore).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfSpace);
  EXPECT_EQ(status.message(), "127.0.0.1:" + std::to_string(server.port()) +
                                  ": an event of the stream is larger than 1000 bytes");
}

// HTTP allows notes behind the size of a chunk, of which nothing is kept.
TEST(HttpClient, AFrameWithoutAnEndIsRefused) {
  ScriptedServer server([](const std::string&) {
    return ScriptedAnswer{std::string(testing::kStreamHead) + "5;" + std::string(1'000'000, 'x'),
                          true};
  });
  EXPECT_EQ(ClientOf(server).Get("/").status().code(), StatusCode::kCorrupt);
}

// Name servers that do not answer are waited for by the system as long as it likes.
TEST(HttpClient, ALookUpThatTakesTooLongEndsTheCall) {
  HttpClientOptions options = Quick();
  options.connect_timeout = milliseconds(50);
  const Result<HttpClient> client =
      HttpClient::Create("http://" + std::string(kSlowHost) + ":80", options);
  ASSERT_TRUE(client.ok());
  const Status status = client->Get("/").status();
  slow_look_up.Open();
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_EQ(status.message(),
            "cannot resolve slow.test: the system's look-up did not end within 50 ms");
}

TEST(HttpClient, NobodyListens) {
  const int port = FreePort();
  const Result<HttpClient> client = HttpClient::Create("http://127.0.0.1:" + std::to_string(port));
  ASSERT_TRUE(client.ok());
  const Status status = client->Get("/").status();
  EXPECT_EQ(status.code(), StatusCode::kPeerLost);
  EXPECT_EQ(status.message(),
            "cannot connect to 127.0.0.1:" + std::to_string(port) + ": Connection refused");
  EXPECT_FALSE(CanConnect("127.0.0.1", port, std::chrono::seconds(1)));
}

TEST(HttpClient, Urls) {
  EXPECT_EQ(HttpClient::Create("http://host")->address(), "host:80");
  EXPECT_EQ(HttpClient::Create("http://host:8000/v1/")->address(), "host:8000");
  EXPECT_EQ(HttpClient::Create("http://[::1]:8000")->address(), "[::1]:8000");
  EXPECT_EQ(HttpClient::Create("https://host/v1")->address(), "host:443");
  for (const char* url : {"", "host", "http://", "http://:80", "http://host:", "http://host:port",
                          "http://host:123456", "ftp://host"}) {
    EXPECT_EQ(HttpClient::Create(url).status().code(), StatusCode::kInvalidArgument) << url;
  }
}

// Clients of OpenAI want the version in their base URL; paths have it here.
TEST(HttpClient, TheVersionAtTheEndOfAUrlIsLeftOut) {
  for (const auto& [url, prefix] :
       std::vector<std::pair<std::string, std::string>>{{"http://host/v1", ""},
                                                        {"http://host/v1/", ""},
                                                        {"http://host/", ""},
                                                        {"http://host/openai/v1", "/openai"},
                                                        {"http://host/openai//v1//", "/openai"},
                                                        {"http://host/v1/chat", "/v1/chat"},
                                                        {"http://host/apiv1", "/apiv1"},
                                                        {"http://host/v1beta", "/v1beta"}})
    EXPECT_EQ(HttpUrl::Parse(url)->prefix, prefix) << url;
}

TEST(HttpClient, AHostWithItsPortIsAUrl) {
  const Result<HttpUrl> url = HttpUrl::Parse("localhost:8000/v1");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->address(), "localhost:8000");
  EXPECT_EQ(url->prefix, "");
  EXPECT_EQ(HttpUrl::Parse("[::1]:8000")->host, "::1");
  for (const char* wrong : {"localhost", "localhost:", "localhost:x", "ftp://localhost:8000", ""})
    EXPECT_FALSE(HttpUrl::Parse(wrong).ok()) << wrong;
}

TEST(HttpClient, ErrorMessages) {
  EXPECT_EQ(ErrorMessageOf({400, R"({"error":{"message":"why"}})"}), "why");
  EXPECT_EQ(ErrorMessageOf({500, "<html>"}), "<html>");
  EXPECT_EQ(ErrorMessageOf({500, R"({"error":"text"})"}), R"({"error":"text"})");
  EXPECT_EQ(ErrorMessageOf({500, ""}), "no explanation");
}

}  // namespace
}  // namespace lamina
