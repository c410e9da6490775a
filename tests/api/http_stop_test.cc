// Servers that stop, or that are gone before their engine.
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "api/http_client.h"
#include "tests/support/gated_tokenizer.h"
#include "tests/support/http_fixture.h"

namespace lamina::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;

class HttpStop : public HttpTest {
 protected:
  // Starts the server and a client's stream, which has its first token and gets the next one after
  // engine_->Resume.
  ClientConnection& StartWithAPausedStream() {
    StartServer(AlwaysAnswer({488, 489, 2}));
    engine_->PauseAfter(1);
    stream_ = std::make_unique<ClientConnection>(port());
    stream_->SendRequest("POST", "/v1/completions", R"({"prompt": "x", "stream": true})");
    EXPECT_TRUE(stream_->ReceiveUntil("Once"));
    return *stream_;
  }

 private:
  std::unique_ptr<ClientConnection> stream_;
};

TEST_F(HttpStop, StopLetsRequestsEnd) {
  ClientConnection& stream = StartWithAPausedStream();
  ClientConnection idle(port());
  idle.SendRequest("GET", "/health");
  EXPECT_EQ(idle.Receive().status, 200);
  std::thread stopper([&] { server_->Stop(std::chrono::seconds(30)); });
  const Deadline deadline = Soon();
  int health = 200;
  while (health == 200 && !deadline.Passed()) health = Get("/health").status;
  EXPECT_EQ(health, 503);  // draining, but still there
  EXPECT_EQ(Post("/v1/completions", {{"prompt", "x"}}).status, 503);
  engine_->Resume();
  EXPECT_TRUE(stream.ReceiveUntil("[DONE]"));
  stopper.join();
  EXPECT_TRUE(idle.ReceivedEnd());
}

TEST_F(HttpStop, StopEndsWhatDoesNotEndByItself) {
  ClientConnection& stream = StartWithAPausedStream();
  server_->Stop(Clock::duration::zero());
  EXPECT_TRUE(stream.ReceiveUntil("shutting down"));
  EXPECT_TRUE(stream.ReceiveUntil("[DONE]"));
  EXPECT_TRUE(stream.ReceivedEnd());
  EXPECT_TRUE(engine_->WaitForAborts(1, Soon()));
  server_->Stop(Clock::duration::zero());  // once more is fine
}

// By another thread than the owner as well, as by a signal's.
TEST_F(HttpStop, ThreadsThatStopTheServerAtTheSameTimeStopItOnce) {
  ClientConnection& stream = StartWithAPausedStream();
  std::atomic<size_t> failed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      failed += server_->Stop(Clock::duration::zero());
      EXPECT_FALSE(CanConnect("127.0.0.1", port(), seconds(5))) << "whoever returns, it is stopped";
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 1u);
  EXPECT_TRUE(stream.ReceiveUntil("shutting down"));
}

// A node may be killed shortly before its manager is asked to stop.
TEST_F(HttpStop, StopCountsWhatFailedShortlyBeforeIt) {
  for (const bool shortly : {true, false}) {
    options_.service.drain_lookback = shortly ? std::chrono::hours(1) : Clock::duration::zero();
    StartServer(AlwaysAnswer({488, 489, 2}));
    engine_->FailAfter(1, PeerLost("lost memory node m0: test"));
    EXPECT_EQ(Post("/v1/completions", {{"prompt", "x"}}).status, 503);
    EXPECT_EQ(
        Post("/v1/completions", {{"prompt", "x"}, {"use_beam_search", true}, {"n", 2}}).status,
        503);
    EXPECT_EQ(server_->Stop(Clock::duration::zero()), shortly ? 2u : 0u);
  }
}

// Their nodes are lost while their bodies are read.
TEST_F(HttpStop, StopCountsWhatFailedBeforeItBegan) {
  options_.service.drain_lookback = std::chrono::hours(1);
  StartServer();
  engine_->RefuseSubmits(PeerLost("no memory node is left: test"));
  EXPECT_EQ(Post("/v1/completions", {{"prompt", "x"}}).status, 503);
  engine_->RefuseSubmits(TryAgain("too many wait: test"));
  EXPECT_EQ(Post("/v1/completions", {{"prompt", "x"}}).status, 503);
  EXPECT_EQ(server_->Stop(Clock::duration::zero()), 1u) << "what is refused was never under way";
}

TEST_F(HttpStop, StopCountsBodiesThatAreStillRead) {
  max_model_len_ = 10'000'000;
  GatedTokenizer gated(tokenizer());
  tokenizer_ = &gated;
  StartServer();
  std::thread client([&] {
    const json body = {{"prompt", std::string(GatedTokenizer::kLongBytes, 'a')}};
    EXPECT_EQ(Post("/v1/completions", body).status, 503);
  });
  const Deadline deadline = Soon();
  while (gated.num_inside == 0 && !deadline.Passed()) std::this_thread::yield();
  EXPECT_EQ(gated.num_inside, 1);
  EXPECT_EQ(server_->Stop(Clock::duration::zero()), 1u);
  gated.open = true;
  client.join();
  server_.reset();  // it uses the tokenizer
}

// The error is the server's own, not the engine's.
TEST_F(HttpStop, StopCountsAnswersForWhichThereIsNoMemory) {
  options_.service.max_answer_bytes = 20'000;
  options_.service.drain_lookback = std::chrono::hours(1);
  StartServer(AlwaysAnswer(std::vector<TokenId>(200, 488)));
  const json body = {{"prompt", "x"}, {"max_tokens", 200}, {"logprobs", 2}, {"n", 8}};
  EXPECT_EQ(Post("/v1/completions", body).status, 503);
  EXPECT_EQ(server_->Stop(Clock::duration::zero()), 1u);
}

// The engine goes on calling sinks after the server is gone.
TEST_F(HttpStop, TheServerMayGoBeforeTheEngine) {
  StartServer(AlwaysAnswer(std::vector<TokenId>(500, 488)));
  std::vector<std::unique_ptr<ClientConnection>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<ClientConnection>(port()));
    clients.back()->SendRequest("POST", "/v1/completions",
                                R"({"prompt": "x", "stream": true, "max_tokens": 500})");
  }
  ASSERT_TRUE(clients[0]->ReceiveUntil("Once"));
  server_.reset();
  EXPECT_TRUE(engine_->WaitUntilIdle(Soon()));
}

TEST_F(HttpStop, AServerThatNeverStartedCanGo) {
  Metrics metrics("x");
  ServedModel model;
  model.tokenizer = &tokenizer();
  ServerOptions options;
  options.port = 0;
  auto server = HttpServer::Create(options, model, metrics);
  ASSERT_TRUE(server.ok());
  EXPECT_NE((*server)->port(), 0);
}

}  // namespace
}  // namespace lamina::testing
