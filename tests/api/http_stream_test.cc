// Server-sent events: order, framing, ends, and clients that leave.
#include <thread>

#include "tests/support/http_fixture.h"

namespace lamina::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class HttpStream : public HttpTest {
 protected:
  static json Chat(const std::string& content) {
    return {{"messages", {{{"role", "user"}, {"content", content}}}}, {"stream", true}};
  }
};

TEST_F(HttpStream, EveryGoldenPromptTokenByToken) {
  StartServer();
  for (const GoldenPrompt& golden : GoldenPrompts()) {
    const auto events = Stream("/v1/completions",
                               {{"prompt", golden.prompt}, {"max_tokens", 96}, {"stream", true}});
    std::string text;
    size_t num_empty = 0;
    for (const json& event : events) {
      text += event["choices"][0]["text"].get<std::string>();
      num_empty += event["choices"][0]["text"] == "" ? 1 : 0;
      EXPECT_EQ(event["object"], "text_completion");
      EXPECT_EQ(event["id"], events[0]["id"]);
      EXPECT_FALSE(event.contains("usage"));
      EXPECT_EQ(event["choices"][0]["finish_reason"].is_null(), &event != &events.back());
    }
    EXPECT_EQ(text, golden.text);
    EXPECT_EQ(events.back()["choices"][0]["finish_reason"], golden.finish_reason);
    EXPECT_LE(num_empty, 1u);  // only the last one may be, to tell the finish
  }
}

TEST_F(HttpStream, OneChunkForEachEvent) {
  StartServer(AlwaysAnswer({488, 489, 261}));
  const ClientResponse response =
      Post("/v1/completions", {{"prompt", "x"}, {"max_tokens", 3}, {"stream", true}});
  EXPECT_EQ(response.headers.at("transfer-encoding"), "chunked");
  EXPECT_EQ(response.headers.at("cache-control"), "no-cache");
  ASSERT_EQ(response.chunks.size(), 4u);
  for (const std::string& chunk : response.chunks) {
    EXPECT_EQ(chunk.substr(0, 6), "data: ");
    EXPECT_EQ(chunk.find("\n\n"), chunk.size() - 2);
  }
}

// What is sent must be there before the next token is made.
TEST_F(HttpStream, TokensAreSentAtOnce) {
  StartServer(AlwaysAnswer({488, 489, 2}));
  engine_->PauseAfter(1);
  ClientConnection connection(port());
  connection.SendRequest("POST", "/v1/completions", R"({"prompt": "x", "stream": true})");
  EXPECT_TRUE(connection.ReceiveUntil("Once"));
  EXPECT_EQ(engine_->num_running(), 1u);
  engine_->Resume();
  EXPECT_TRUE(connection.ReceiveUntil("[DONE]"));
}

TEST_F(HttpStream, TheChatRoleComesWithTheFirstToken) {
  StartServer(AlwaysAnswer({488, 489, 2}));
  const auto events = Stream("/v1/chat/completions", Chat("x"));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(events[0]["choices"][0]["delta"], (json{{"role", "assistant"}, {"content", " Once"}}));
  EXPECT_EQ(events[1]["choices"][0]["delta"], (json{{"content", " upon"}}));
  EXPECT_EQ(events[2]["choices"][0]["delta"], json::object());
  EXPECT_EQ(events[2]["choices"][0]["finish_reason"], "stop");
}

TEST_F(HttpStream, UsageComesLastWhenAskedFor) {
  StartServer(AlwaysAnswer({488, 489, 2}));
  json request = Chat("x");
  request["stream_options"] = {{"include_usage", true}};
  const auto events = Stream("/v1/chat/completions", request);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_TRUE(events[0].contains("usage") && events[0]["usage"].is_null());
  EXPECT_EQ(events[3]["choices"], json::array());
  EXPECT_EQ(events[3]["usage"]["completion_tokens"], 3);
  request["stream_options"]["continuous_usage_stats"] = true;
  const auto continuous = Stream("/v1/chat/completions", request);
  EXPECT_EQ(continuous[0]["usage"]["completion_tokens"], 1);
  EXPECT_EQ(continuous[1]["usage"]["completion_tokens"], 2);
}

TEST_F(HttpStream, ChoicesInterleaveEachInOrder) {
  const std::vector<std::vector<TokenId>> answers = {
      {488, 489, 261, 396, 2}, {261, 261, 2}, {396, 488, 396, 488, 2}};
  StartServer(
      [&](const GenerateRequest&, int index) { return answers[static_cast<size_t>(index)]; });
  const auto events = Stream("/v1/completions", {{"prompt", "x"}, {"n", 3}, {"stream", true}});
  std::vector<std::string> texts(3);
  std::vector<int> finishes(3);
  for (const json& event : events) {
    const size_t index = event["choices"][0]["index"];
    EXPECT_EQ(finishes[index], 0) << "text behind the finish";
    texts[index] += event["choices"][0]["text"].get<std::string>();
    finishes[index] += event["choices"][0]["finish_reason"].is_null() ? 0 : 1;
  }
  EXPECT_EQ(finishes, (std::vector<int>{1, 1, 1}));
  for (size_t i = 0; i < 3; ++i) {
    std::string expected;
    for (const TokenId token : answers[i])
      expected += token == 2 ? "" : tokenizer().TokenBytes(token);
    EXPECT_EQ(texts[i], expected);
  }
}

TEST_F(HttpStream, IncompleteCharactersAndPossibleStopsAreHeldBack) {
  // A snowman in three bytes, " Once upon a".
  StartServer(AlwaysAnswer({229, 155, 134, 488, 489, 261, 2}));
  const auto events =
      Stream("/v1/completions", {{"prompt", "x"}, {"stream", true}, {"stop", "Once upon a"}});
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0]["choices"][0]["text"], "\xE2\x98\x83");
  EXPECT_EQ(events[1]["choices"][0]["text"], " ");
  EXPECT_EQ(events[2]["choices"][0]["text"], "");
  EXPECT_EQ(events[2]["choices"][0]["stop_reason"], "Once upon a");
}

TEST_F(HttpStream, LogprobsOfHeldBackTokensComeWithTheNextText) {
  StartServer(AlwaysAnswer({229, 155, 134, 488, 2}));
  const auto events =
      Stream("/v1/completions", {{"prompt", "x"}, {"stream", true}, {"logprobs", 0}});
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0]["choices"][0]["logprobs"]["tokens"].size(), 3u);
  EXPECT_EQ(events[1]["choices"][0]["logprobs"]["tokens"], (json{" Once"}));
  EXPECT_EQ(events[1]["choices"][0]["logprobs"]["text_offset"], (json{1}));
  EXPECT_EQ(events[2]["choices"][0]["logprobs"]["tokens"], (json{"</s>"}));
}

TEST_F(HttpStream, EchoIsInTheFirstEvent) {
  StartServer(AlwaysAnswer({488, 2}));
  const auto events =
      Stream("/v1/completions", {{"prompt", "Hi"}, {"stream", true}, {"echo", true}});
  EXPECT_EQ(events[0]["choices"][0]["text"], "Hi Once");
}

TEST_F(HttpStream, AnErrorInTheMiddleIsOneEventAndTheEnd) {
  StartServer();
  engine_->FailAfter(3, PeerLost("memory node m1 is lost"));
  const ClientResponse response =
      Post("/v1/completions", {{"prompt", "Once upon a time"}, {"n", 2}, {"stream", true}});
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.complete);
  const auto events = response.Events();
  ASSERT_GE(events.size(), 3u);
  const json error = json::parse(events[events.size() - 2]);
  EXPECT_EQ(error["error"]["message"], "memory node m1 is lost");
  EXPECT_EQ(error["error"]["code"], 503);
  EXPECT_EQ(events.back(), "[DONE]");
  for (size_t i = 0; i + 2 < events.size(); ++i)
    EXPECT_FALSE(json::parse(events[i]).contains("error"));
}

TEST_F(HttpStream, LosingTheEngineEndsStreamsWithAnError) {
  StartServer(AlwaysAnswer({488, 489, 2}));
  engine_->PauseAfter(1);
  ClientConnection connection(port());
  connection.SendRequest("POST", "/v1/completions", R"({"prompt": "x", "stream": true})");
  ASSERT_TRUE(connection.ReceiveUntil("Once"));
  server_->SetEngine(nullptr);
  EXPECT_TRUE(connection.ReceiveUntil("\"error\""));
  EXPECT_TRUE(connection.ReceiveUntil("[DONE]"));
}

TEST_F(HttpStream, AClientThatLeavesAStreamAborts) {
  StartServer(AlwaysAnswer({488, 489, 2}));
  engine_->PauseAfter(1);
  ClientConnection connection(port());
  connection.SendRequest("POST", "/v1/completions",
                         R"({"prompt": ["x", "y"], "n": 2, "stream": true})");
  ASSERT_TRUE(connection.ReceiveUntil("Once"));
  connection.Close();
  EXPECT_TRUE(engine_->WaitForAborts(4, Soon()));
  EXPECT_EQ(Get("/health").status, 200);
}

TEST_F(HttpStream, AClientThatLeavesBeforeAnythingWasSentAborts) {
  StartServer(AlwaysAnswer({488, 489, 2}));
  engine_->PauseAfter(0);
  for (const char* body : {R"({"prompt": "x"})", R"({"prompt": "x", "stream": true})"}) {
    ClientConnection connection(port());
    connection.SendRequest("POST", "/v1/completions", body);
    const Deadline deadline = Soon();
    while (engine_->num_running() == 0 && !deadline.Passed()) std::this_thread::yield();
    connection.Close();
    EXPECT_TRUE(engine_->WaitUntilIdle(Soon())) << body;
  }
  EXPECT_TRUE(engine_->WaitForAborts(2, Soon()));
}

// TCP says the same of a client that has nothing more to say and of one that is gone.
TEST_F(HttpStream, AClientThatHasSaidAllGetsItsAnswer) {
  StartServer(AlwaysAnswer({488, 489, 2}));
  for (const bool stream : {false, true}) {
    engine_->PauseAfter(0);
    ClientConnection connection(port());
    connection.SendRequest("POST", "/v1/completions",
                           json{{"prompt", "x"}, {"stream", stream}}.dump());
    connection.CloseSending();
    ASSERT_TRUE(connection.ReceiveUntil("HTTP/1.1 100 Continue\r\n\r\n"));  // the end was seen
    engine_->Resume();
    EXPECT_TRUE(connection.ReceiveUntil(stream ? "[DONE]" : "\"finish_reason\":\"stop\""));
    EXPECT_TRUE(connection.ReceivedEnd());
  }
  engine_->PauseAfter(1);
  ClientConnection begun(port());
  begun.SendRequest("POST", "/v1/completions", R"({"prompt": "x", "stream": true})");
  ASSERT_TRUE(begun.ReceiveUntil("Once"));
  begun.SendRequest("GET", "/version");
  begun.CloseSending();
  ASSERT_TRUE(begun.ReceiveUntil("3\r\n:\n\n\r\n"));  // a comment in the stream
  engine_->Resume();
  EXPECT_TRUE(begun.ReceiveUntil("[DONE]"));
  EXPECT_TRUE(begun.ReceiveUntil("0.1.0"));  // and what it had asked for behind it
  EXPECT_TRUE(begun.ReceivedEnd());
}

TEST_F(HttpStream, AClientThatHasSaidAllAndLeavesAborts) {
  StartServer(AlwaysAnswer({488, 489, 2}));
  engine_->PauseAfter(0);
  ClientConnection connection(port());
  connection.SendRequest("POST", "/v1/completions", R"({"prompt": "x"})");
  connection.CloseSending();
  ASSERT_TRUE(connection.ReceiveUntil("HTTP/1.1 100 Continue\r\n\r\n"));
  connection.Close();  // which says nothing more to the server
  EXPECT_TRUE(engine_->WaitForAborts(1, Soon()));
  const std::string body = R"({"prompt": "x"})";
  ClientConnection old(port());
  old.Send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\n\r\n" + body);
  // One that leaves before it is submitted is never submitted.
  const Deadline deadline = Soon();
  while (engine_->requests().size() < 2 && !deadline.Passed()) std::this_thread::yield();
  old.CloseSending();  // HTTP/1.0 has nothing that it could be sent before its answer
  EXPECT_TRUE(engine_->WaitForAborts(2, Soon()));
  EXPECT_TRUE(old.ReceivedEnd());
}

TEST_F(HttpStream, TokensThatComeSlowlyAreNoReasonToEndAStream) {
  options_.write_timeout = milliseconds(50);
  options_.min_bytes_per_second = size_t{1} << 40;  // no client takes so much
  StartServer(AlwaysAnswer(std::vector<TokenId>(20, 488)));
  engine_->SetTokenTime(milliseconds(10));
  const auto events =
      Stream("/v1/completions", {{"prompt", "x"}, {"stream", true}, {"max_tokens", 20}});
  EXPECT_EQ(events.size(), 20u);
}

TEST_F(HttpStream, ASecondRequestOnTheSameConnectionIsWatchedToo) {
  StartServer(AlwaysAnswer({488, 489, 2}));
  ClientConnection connection(port());
  for (int i = 0; i < 3; ++i) {
    connection.SendRequest("POST", "/v1/completions", R"({"prompt": "x"})");
    EXPECT_EQ(connection.Receive().status, 200);
  }
  engine_->PauseAfter(1);
  connection.SendRequest("POST", "/v1/completions", R"({"prompt": "x", "stream": true})");
  ASSERT_TRUE(connection.ReceiveUntil("Once"));
  connection.Close();
  EXPECT_TRUE(engine_->WaitForAborts(1, Soon()));
}

// What it has sent ahead does not hide that it goes.
TEST_F(HttpStream, AClientThatSentMoreAndLeavesAborts) {
  StartServer(AlwaysAnswer({488, 489, 2}));
  engine_->PauseAfter(1);
  ClientConnection connection(port());
  connection.SendRequest("POST", "/v1/completions", R"({"prompt": "x", "stream": true})");
  ASSERT_TRUE(connection.ReceiveUntil("Once"));
  connection.Send("\n");
  connection.Send("GET /version HTTP/1.1\r\n");
  connection.Close();
  EXPECT_TRUE(engine_->WaitForAborts(1, Soon()));
}

TEST_F(HttpStream, RequestsSentAheadWhileAnAnswerIsMadeAreAnswered) {
  StartServer(AlwaysAnswer({488, 489, 2}));
  engine_->PauseAfter(1);
  ClientConnection connection(port());
  connection.SendRequest("POST", "/v1/completions", R"({"prompt": "x", "stream": true})");
  ASSERT_TRUE(connection.ReceiveUntil("Once"));
  connection.SendRequest("GET", "/version");
  connection.SendRequest("GET", "/ping");
  EXPECT_EQ(Get("/health").status, 200);  // by now the server has read what was sent ahead
  engine_->Resume();
  EXPECT_TRUE(connection.ReceiveUntil("[DONE]"));
  EXPECT_TRUE(connection.ReceiveUntil("0.1.0"));
  EXPECT_TRUE(connection.ReceiveUntil("Content-Length: 0"));
}

TEST_F(HttpStream, AClientThatSendsTooMuchAheadIsCutOff) {
  StartServer(AlwaysAnswer({488, 489, 2}));
  engine_->PauseAfter(1);
  ClientConnection connection(port());
  connection.SendRequest("POST", "/v1/completions", R"({"prompt": "x", "stream": true})");
  ASSERT_TRUE(connection.ReceiveUntil("Once"));
  connection.Send(std::string(100'000, 'x'));
  EXPECT_TRUE(engine_->WaitForAborts(1, Soon()));
  EXPECT_EQ(Get("/health").status, 200);
}

// A client that does not read: its stream is cut off when too much waits for it, and the engine is
// free again.
TEST_F(HttpStream, AClientThatDoesNotReadIsCutOff) {
  options_.max_send_queue_bytes = 64 << 10;
  max_model_len_ = 2'000'000;
  StartServer(AlwaysAnswer(std::vector<TokenId>(1'000'000, 488)));
  engine_->SetTokenTime(std::chrono::microseconds(50));
  ClientConnection connection(port(), /*receive_buffer_bytes=*/4096);
  connection.SendRequest("POST", "/v1/completions",
                         R"({"prompt": "x", "stream": true, "max_tokens": 1000000})");
  EXPECT_TRUE(engine_->WaitForAborts(1, Soon()));
  EXPECT_EQ(Get("/health").status, 200);
}

TEST_F(HttpStream, SixtyFourStreamsAtOnce) {
  StartServer();
  const std::vector<GoldenPrompt> golden = GoldenPrompts();
  std::vector<std::thread> clients;
  std::vector<std::string> texts(64);
  std::vector<std::string> last(64);
  for (size_t i = 0; i < 64; ++i) {
    clients.emplace_back([&, i] {
      ClientConnection connection(port());
      const json body = {
          {"prompt", golden[i % golden.size()].prompt}, {"max_tokens", 96}, {"stream", true}};
      connection.SendRequest("POST", "/v1/completions", body.dump());
      const auto events = connection.Receive().Events();
      for (const std::string& event : events) {
        last[i] = event;
        if (event != "[DONE]")
          texts[i] += json::parse(event)["choices"][0]["text"].get<std::string>();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(texts[i], golden[i % golden.size()].text);
    EXPECT_EQ(last[i], "[DONE]");
  }
}

TEST_F(HttpStream, OldClientsGetAStreamThatEndsWithTheConnection) {
  StartServer(AlwaysAnswer({488, 2}));
  ClientConnection connection(port());
  const std::string body = R"({"prompt": "x", "stream": true})";
  connection.Send("POST /v1/completions HTTP/1.0\r\nContent-Length: " +
                  std::to_string(body.size()) + "\r\n\r\n" + body);
  const ClientResponse response = connection.Receive();
  EXPECT_FALSE(response.headers.contains("transfer-encoding"));
  EXPECT_EQ(response.Events().back(), "[DONE]");
}

}  // namespace
}  // namespace lamina::testing
