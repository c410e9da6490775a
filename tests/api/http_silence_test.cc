// Comments in streams that are silent.
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/http_fixture.h"

namespace lamina::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kComment[] = ": waiting\n\n";
constexpr char kStreamX[] = R"({"prompt": "x", "stream": true})";

// So many comments in a row, as clients get them that know chunks.
std::string Comments(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "b\r\n" + std::string(kComment) + "\r\n";
  return text;
}

// The text of a completion or a chat. Every chunk has to be one event or one comment.
std::string TextOf(const ClientResponse& response) {
  EXPECT_TRUE(response.complete);
  for (const std::string& chunk : response.chunks) {
    if (chunk == kComment) continue;
    EXPECT_THAT(chunk, StartsWith("data: "));
    EXPECT_EQ(chunk.find("\n\n"), chunk.size() - 2);
  }
  std::string text, last;
  for (const std::string& event : response.Events()) {
    last = event;
    if (event == "[DONE]") continue;
    const json choice = json::parse(event)["choices"][0];
    text +=
        choice.contains("text") ? choice.value("text", "") : choice["delta"].value("content", "");
  }
  EXPECT_EQ(last, "[DONE]");
  return text;
}

class HttpSilence : public HttpTest {
 protected:
  static constexpr milliseconds kInterval{20};

  HttpSilence() { options_.comment_interval = kInterval; }

  // Returns when another stream has been silent for so many intervals. REQUIRES: the engine pauses.
  void AwaitIntervals(int count) {
    ClientConnection other(port());
    other.SendRequest("POST", "/v1/completions", kStreamX);
    EXPECT_TRUE(other.ReceiveUntil(Comments(count)));
  }
};

TEST_F(HttpSilence, AStreamThatPausesGetsACommentInEachInterval) {
  StartServer(AlwaysAnswer({488, 489, 2}));
  ClientConnection connection(port());
  for (int i = 0; i < 3; ++i) {  // a later stream of the connection gets no more of them
    engine_->PauseAfter(1);
    const TimePoint begin = Clock::now();
    connection.SendRequest("POST", "/v1/completions", kStreamX);
    ASSERT_TRUE(connection.ReceiveUntil("Once"));
    EXPECT_TRUE(connection.ReceiveUntil(Comments(5)));
    EXPECT_GE(Clock::now() - begin, 5 * kInterval);
    engine_->Resume();
    EXPECT_EQ(TextOf(connection.Receive()), " Once upon");
  }
}

TEST_F(HttpSilence, AStreamThatWaitsForItsFirstTokenGetsComments) {
  StartServer(AlwaysAnswer({488, 489, 2}));
  const std::vector<std::pair<std::string, std::string>> requests = {
      {"/v1/completions", kStreamX},
      {"/v1/chat/completions",
       R"({"messages": [{"role": "user", "content": "x"}], "stream": true})"}};
  for (const auto& [path, body] : requests) {
    engine_->PauseAfter(0);
    ClientConnection connection(port());
    connection.SendRequest("POST", path, body);
    EXPECT_TRUE(connection.ReceiveUntil(Comments(3))) << path;
    engine_->Resume();
    const ClientResponse response = connection.Receive();
    EXPECT_EQ(response.status, 200);
    EXPECT_THAT(response.headers.at("content-type"), StartsWith("text/event-stream"));
    EXPECT_EQ(TextOf(response), " Once upon") << path;
  }
}

// The status went ahead of it.
TEST_F(HttpSilence, AnErrorBehindACommentIsAnEvent) {
  StartServer(AlwaysAnswer({488}));
  engine_->PauseAfter(0);
  engine_->FailAfter(0, PeerLost("memory node m1 is lost"));
  ClientConnection connection(port());
  connection.SendRequest("POST", "/v1/completions", kStreamX);
  ASSERT_TRUE(connection.ReceiveUntil(kComment));
  engine_->Resume();
  const ClientResponse response = connection.Receive();
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.complete);
  const std::vector<std::string> events = response.Events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(json::parse(events[0])["error"]["message"], "memory node m1 is lost");
  EXPECT_EQ(json::parse(events[0])["error"]["code"], 503);
  EXPECT_EQ(events[1], "[DONE]");
}

TEST_F(HttpSilence, TokensBreakTheSilence) {
  options_.comment_interval = std::chrono::seconds(1);
  StartServer(AlwaysAnswer(std::vector<TokenId>(26, 488)));
  engine_->SetTokenTime(milliseconds(50));  // 1.3 s together
  const ClientResponse response =
      Post("/v1/completions", {{"prompt", "x"}, {"stream", true}, {"max_tokens", 26}});
  EXPECT_EQ(response.chunks.size(), 27u);
  EXPECT_THAT(response.body, ::testing::Not(HasSubstr(kComment)));
}

TEST_F(HttpSilence, AnswersThatAreNotStreamedGetNoComments) {
  StartServer(AlwaysAnswer({488, 489, 2}));
  ClientConnection connection(port());
  connection.SendRequest("POST", "/v1/completions", kStreamX);
  EXPECT_TRUE(connection.Receive().complete);  // a stream before it changes nothing
  engine_->PauseAfter(0);
  connection.SendRequest("POST", "/v1/completions", R"({"prompt": "x"})");
  AwaitIntervals(5);
  engine_->Resume();
  const ClientResponse response = connection.Receive();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("content-type"), "application/json");
  EXPECT_EQ(response.json()["choices"][0]["text"], " Once upon");
}

TEST_F(HttpSilence, NothingComesBehindTheEndOfAStream) {
  StartServer(AlwaysAnswer({488, 489, 2}));
  ClientConnection connection(port());
  connection.SendRequest("POST", "/v1/completions", kStreamX);
  EXPECT_EQ(TextOf(connection.Receive()), " Once upon");
  engine_->PauseAfter(0);
  AwaitIntervals(5);
  connection.SendRequest("GET", "/version");
  EXPECT_EQ(connection.Receive().status, 200);
}

// More bytes than the system takes for a client that does not read.
constexpr size_t kManyTokens = 4000;
constexpr char kStreamMany[] = R"({"prompt": "x", "stream": true, "max_tokens": 4001})";

TEST_F(HttpSilence, CommentsDoNotPileUpForAClientThatDoesNotRead) {
  options_.max_send_queue_bytes = size_t{64} << 20;
  max_model_len_ = 10'000;
  StartServer(AlwaysAnswer(std::vector<TokenId>(kManyTokens + 1, 488)));
  engine_->PauseAfter(kManyTokens);
  ClientConnection slow(port(), /*receive_buffer_bytes=*/4096);
  slow.SendRequest("POST", "/v1/completions", kStreamMany);
  ClientConnection other(port());
  other.SendRequest("POST", "/v1/completions", kStreamMany);
  ASSERT_TRUE(other.ReceiveUntil(Comments(10)));
  engine_->Resume();
  ASSERT_TRUE(other.ReceiveUntil("[DONE]"));
  size_t num_events = 0, num_comments = 0;
  for (const std::string& chunk : slow.Receive().chunks) {
    if (chunk != kComment) {
      ++num_events;
    } else if (num_events == kManyTokens) {
      ++num_comments;  // in the pause
    }
  }
  EXPECT_EQ(num_events, kManyTokens + 2);  // with [DONE]
  EXPECT_LE(num_comments, 1u);
}

TEST_F(HttpSilence, AClientThatDoesNotReadIsCutOffAllTheSame) {
  options_.max_send_queue_bytes = size_t{64} << 20;
  options_.write_timeout = 10 * kInterval;
  max_model_len_ = 10'000;
  StartServer(AlwaysAnswer(std::vector<TokenId>(kManyTokens + 1, 488)));
  engine_->PauseAfter(kManyTokens);
  ClientConnection slow(port(), /*receive_buffer_bytes=*/4096);
  slow.SendRequest("POST", "/v1/completions", kStreamMany);
  EXPECT_TRUE(engine_->WaitForAborts(1, Soon()));
}

// An interim response would stand in the middle of the stream.
TEST_F(HttpSilence, AClientThatHasSaidAllIsProbedByACommentBehindTheFirst) {
  StartServer(AlwaysAnswer({488, 489, 2}));
  engine_->PauseAfter(0);
  ClientConnection connection(port());
  connection.SendRequest("POST", "/v1/completions", kStreamX);
  ASSERT_TRUE(connection.ReceiveUntil(kComment));
  connection.CloseSending();
  ASSERT_TRUE(connection.ReceiveUntil("3\r\n:\n\n\r\n"));
  engine_->Resume();
  const ClientResponse response = connection.Receive();
  EXPECT_TRUE(response.complete);
  EXPECT_THAT(response.body, ::testing::Not(HasSubstr("HTTP/1.1")));
  EXPECT_EQ(response.Events().back(), "[DONE]");
}

TEST_F(HttpSilence, OldClientsGetCommentsWithoutChunks) {
  StartServer(AlwaysAnswer({488, 489, 2}));
  engine_->PauseAfter(0);
  ClientConnection connection(port());
  const std::string body = kStreamX;
  connection.Send("POST /v1/completions HTTP/1.0\r\nContent-Length: " +
                  std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_TRUE(connection.ReceiveUntil("\r\n\r\n" + std::string(kComment) + std::string(kComment)));
  engine_->Resume();
  EXPECT_EQ(connection.Receive().Events().back(), "[DONE]");
}

}  // namespace
}  // namespace lamina::testing
