// A front and its managers on one thread: what clients are told when managers come and go.
#include "manager/remote_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "manager/engine_service.h"
#include "tests/support/played_engine.h"
#include "wire/codec.h"

namespace lamina::testing {
namespace remote_requests_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kVocab = 1000;
constexpr uint64_t kFront = 7;

// A manager: an engine that the test plays, behind a service.
struct Manager {
  explicit Manager(const std::string& model = "tiny", uint64_t id = 1)
      : service(std::make_unique<EngineService>(
            EngineServiceOptions{.model = model, .vocab_size = kVocab, .manager_id = id}, engine,
            port)) {}
  PlayedEngine engine;
  PlayedPort port;
  std::unique_ptr<EngineService> service;
};

struct Seen : EngineObserver {
  std::vector<double> first, next;
  std::vector<Finished> finished;
  void OnFirstToken(double seconds) override { first.push_back(seconds); }
  void OnNextToken(double seconds) override { next.push_back(seconds); }
  void OnFinished(const Finished& one) override { finished.push_back(one); }
  void OnStep(const Step&) override {}
};

class RemoteRequestsTest : public ::testing::Test {
 protected:
  // What a client has heard of a continuation.
  struct Heard {
    std::vector<TokenId> tokens;
    std::vector<bool> first;
    std::vector<TokenId> scored;  // of the prompt
    std::optional<FinishReason> finish;
    Status error;
  };

  void Connect(Manager& manager) {
    manager_ = &manager;
    manager.port.Connect(kFront);
    front_.OnConnected();
    Run();
  }
  void Lose() {
    manager_ = nullptr;
    front_.OnLost(PeerLost("connection reset"), now_);
    Run();
  }
  // Everything that there is to say is said.
  void Run() {
    for (bool did = true; did;) {
      front_.Turn(now_);
      std::vector<ControlFrame> frames = front_.TakeFrames();
      did = !frames.empty();
      for (ControlFrame& frame : frames) {
        if (manager_ != nullptr) manager_->port.Take(kFront, std::move(frame));
      }
      if (manager_ != nullptr) {
        did |= manager_->service->Turn(now_);
        auto& sent = manager_->port.sent[kFront];
        for (; !sent.empty(); sent.pop_front()) {
          did = true;
          const Status taken = front_.TakeFrame(sent.front(), now_);
          if (!taken.ok()) refused_ = taken;
        }
      }
    }
    for (const Delivery& delivery : front_.TakeDeliveries()) delivery.sink(delivery.event);
  }
  RequestId Submit(int n = 1, int64_t max_new_tokens = 10, int32_t num_prompt_logprobs = -1) {
    GenerateRequest request;
    request.prompt = {1, 2, 3};
    request.sampling.num_prompt_logprobs = num_prompt_logprobs;
    request.n = n;
    request.max_new_tokens = max_new_tokens;
    heard_.emplace_back(static_cast<size_t>(n));
    const auto sink = [this, k = heard_.size() - 1](const TokenEvent& event) {
      Heard& of = heard_[k].at(static_cast<size_t>(event.index));
      EXPECT_FALSE(of.finish) << "nothing comes after the end";
      for (const TokenScore& score : event.scored) of.scored.push_back(score.token);
      if (event.token) of.tokens.push_back(*event.token);
      if (event.token) of.first.push_back(event.first);
      of.finish = event.finish;
      of.error = event.error;
    };
    const Result<RequestId> id = front_.Submit(std::move(request), sink, now_);
    EXPECT_TRUE(id.ok()) << id.status();
    Run();
    return *id;
  }
  void Pass(Clock::duration time) {
    now_ += time;
    Run();
  }
  const Heard& Of(size_t request, size_t index = 0) const { return heard_[request][index]; }

  TimePoint now_{};
  Seen seen_;
  RemoteRequests front_{
      {.model = "tiny", .vocab_size = kVocab, .give_up_after = seconds(60), .observer = &seen_},
      now_};
  Manager* manager_ = nullptr;
  Status refused_;
  std::vector<std::vector<Heard>> heard_;  // by request and continuation
};

TEST_F(RemoteRequestsTest, ClientsHearWhatTheEngineTells) {
  Manager manager;
  Connect(manager);
  ASSERT_TRUE(front_.is_open()) << refused_;
  Submit(2);
  ASSERT_THAT(manager.engine.asked, SizeIs(1));
  EXPECT_THAT(manager.engine.asked[0].request.told, IsEmpty()) << "nothing was told yet";
  Pass(milliseconds(50));
  manager.engine.Tell(0, 40, 0);
  manager.engine.Tell(0, 41, 0);
  manager.engine.Tell(0, 50, 1, FinishReason::kStop);
  Run();
  Pass(milliseconds(10));
  manager.engine.Tell(0, 42, 0, FinishReason::kLength);
  Run();
  EXPECT_THAT(Of(0).tokens, ElementsAre(40, 41, 42));
  EXPECT_THAT(Of(0).first, ElementsAre(true, false, false));
  EXPECT_EQ(Of(0).finish, FinishReason::kLength);
  EXPECT_EQ(Of(0, 1).finish, FinishReason::kStop);
  EXPECT_EQ(front_.status().detail, "played");
  EXPECT_THAT(seen_.first, ElementsAre(0.05, 0.05));
  EXPECT_THAT(seen_.next, ElementsAre(0, 0.01));
  ASSERT_THAT(seen_.finished, SizeIs(2));
  EXPECT_EQ(seen_.finished[1].output_tokens, 3);
  EXPECT_DOUBLE_EQ(seen_.finished[1].e2e, 0.06);
  EXPECT_FALSE(seen_.finished[1].queue) << "the front does not know it";
}

TEST_F(RemoteRequestsTest, TheNextManagerGoesOnBehindWhatClientsHave) {
  Manager first, second;
  Connect(first);
  Submit(3);
  Submit();
  first.engine.Tell(0, 40, 0);
  first.engine.Tell(0, 50, 1, FinishReason::kStop);
  Run();
  first.engine.Tell(0, 41, 0);  // is not sent any more
  Lose();
  EXPECT_FALSE(front_.status().serving);
  EXPECT_EQ(front_.status().scheduler.num_waiting, 3);
  EXPECT_THAT(front_.status().detail, HasSubstr("connection reset"));
  Pass(seconds(1));
  Connect(second);
  ASSERT_THAT(second.engine.asked, SizeIs(2));
  const std::vector<Told>& told = second.engine.asked[0].request.told;
  ASSERT_THAT(told, SizeIs(3));
  EXPECT_THAT(told[0].tokens, ElementsAre(40));
  EXPECT_FALSE(told[0].over);
  EXPECT_TRUE(told[1].over);
  EXPECT_THAT(told[2].tokens, IsEmpty());
  EXPECT_THAT(second.engine.asked[1].request.told, IsEmpty()) << "it starts anew";
  second.engine.Tell(0, 41, 0, FinishReason::kLength);
  second.engine.Tell(0, 60, 2, FinishReason::kLength);
  second.engine.Tell(1, 70, 0, FinishReason::kLength);
  Run();
  EXPECT_THAT(Of(0).tokens, ElementsAre(40, 41));
  EXPECT_THAT(Of(0).first, ElementsAre(true, false));
  EXPECT_THAT(Of(0, 2).tokens, ElementsAre(60));
  EXPECT_THAT(Of(1).tokens, ElementsAre(70));
  EXPECT_EQ(second.service->num_requests(), 0u);
  EXPECT_EQ(front_.next_turn(), TimePoint::max()) << "nothing is left";
}

TEST_F(RemoteRequestsTest, TheNextManagerIsToldWhichScoresOfThePromptClientsHave) {
  Manager first, second;
  Connect(first);
  Submit(2, 10, /*num_prompt_logprobs=*/0);
  TokenEvent event;
  event.scored = {{.token = 2, .logprob = -1, .rank = 3}};
  first.engine.asked[0].sink(event);
  Run();
  Lose();
  Connect(second);
  ASSERT_THAT(second.engine.asked, SizeIs(1));
  const std::vector<Told>& told = second.engine.asked[0].request.told;
  ASSERT_THAT(told, SizeIs(2));
  EXPECT_EQ(told[0].num_scored, 1);
  EXPECT_THAT(told[0].tokens, IsEmpty());
  EXPECT_EQ(told[1].num_scored, 0);
  event.scored = {{.token = 3, .logprob = -2, .rank = 1}};
  second.engine.asked[0].sink(event);
  second.engine.Tell(0, 41, 0, FinishReason::kLength);
  Run();
  EXPECT_TRUE(refused_.ok()) << refused_;
  EXPECT_THAT(Of(0).scored, ElementsAre(2, 3));
  EXPECT_THAT(Of(0).tokens, ElementsAre(41));
}

// Clients would get an answer that does not fit its prompt.
TEST_F(RemoteRequestsTest, ScoresThatAreNotThePromptsAreNotTaken) {
  const auto refuses = [&](std::vector<TokenScore> scored, std::optional<TokenId> token, int index,
                           int32_t num_prompt_logprobs = 0) {
    Manager manager;
    Connect(manager);
    Submit(2, 10, num_prompt_logprobs);
    TokenEvent event;
    event.index = index;
    event.scored = std::move(scored);
    event.token = token;
    manager.engine.asked.back().sink(event);
    refused_ = OkStatus();
    Run();
    const bool refused = refused_.code() == StatusCode::kCorrupt;
    Lose();
    return refused;
  };
  EXPECT_FALSE(refuses({{.token = 2}}, {}, 0));
  EXPECT_FALSE(refuses({{.token = 2}, {.token = 3}}, 40, 0));
  EXPECT_TRUE(refuses({{.token = 3}}, {}, 0));
  EXPECT_TRUE(refuses({{.token = 2}, {.token = 3}, {.token = 4}}, {}, 0));
  EXPECT_TRUE(refuses({{.token = 2}}, {}, 1));
  EXPECT_TRUE(refuses({{.token = 2}}, 40, 0)) << "one is missing";
  EXPECT_TRUE(refuses({{.token = 2}}, {}, 0, -1)) << "nobody asked";
}

TEST_F(RemoteRequestsTest, EmbeddingsAreTakenWhereTheyAreAskedForAlone) {
  const auto refuses = [&](bool embeds, TokenEvent event) {
    Manager manager;
    Connect(manager);
    GenerateRequest request;
    request.prompt = {1, 2, 3};
    request.max_new_tokens = 1;
    request.sampling.embeds = embeds;
    std::vector<float> told;
    const auto sink = [&told](const TokenEvent& one) { told = one.embedding; };
    const Result<RequestId> id = front_.Submit(request, sink, now_);
    EXPECT_TRUE(id.ok()) << id.status();
    Run();
    manager.engine.asked.back().sink(event);
    refused_ = OkStatus();
    Run();
    const bool refused = refused_.code() == StatusCode::kCorrupt;
    EXPECT_EQ(told, refused ? std::vector<float>() : event.embedding);
    front_.Abort(*id, now_);
    Lose();
    return refused;
  };
  TokenEvent event;
  event.finish = FinishReason::kStop;
  event.embedding = {0.5f, -2};
  EXPECT_FALSE(refuses(true, event));
  EXPECT_TRUE(refuses(false, event)) << "nobody asked";
  event.token = 5;
  EXPECT_TRUE(refuses(true, event)) << "no token belongs to it";
  event.token.reset();
  event.embedding[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(refuses(true, event));
  event.embedding.clear();
  EXPECT_TRUE(refuses(true, event));
  event.finish = FinishReason::kError;
  EXPECT_FALSE(refuses(true, event));
  event.finish.reset();
  event.embedding = {1};
  EXPECT_TRUE(refuses(true, event)) << "it is not over";
}

TEST_F(RemoteRequestsTest, HowMuchWasCachedIsKeptForTheNextManager) {
  Manager first, second;
  Connect(first);
  Submit();
  TokenEvent event;
  event.token = 40;
  event.first = true;
  event.num_cached = 2;
  first.engine.asked[0].sink(event);
  first.engine.Tell(0, 41);  // has no such number
  Run();
  Lose();
  Connect(second);
  EXPECT_EQ(second.engine.asked[0].request.told[0].num_cached, 2);
}

TEST_F(RemoteRequestsTest, TheNextManagerHearsUnderWhatMemoryNodesHaveTheirKv) {
  Manager first("tiny", 11), second("tiny", 12), third("tiny", 13);
  Connect(first);
  Submit(2);
  first.engine.Tell(0, 40, 0);
  first.engine.Tell(0, 41, 1);
  Run();
  Lose();
  Connect(second);
  const std::vector<Told> told = second.engine.asked[0].request.told;
  EXPECT_EQ(told[0].kv, (KvHandle{SequenceId{100}, 11}));
  EXPECT_EQ(told[1].kv, (KvHandle{SequenceId{101}, 11}));
  second.engine.Tell(0, 50, 1);
  Run();
  Lose();
  Connect(third);
  const std::vector<Told> later = third.engine.asked[0].request.told;
  EXPECT_EQ(later[0].kv, (KvHandle{SequenceId{100}, 11})) << "the second had got no token for it";
  EXPECT_EQ(later[1].kv, (KvHandle{SequenceId{101}, 12}));
}

TEST_F(RemoteRequestsTest, RequestsWaitForTheFirstManager) {
  Submit();
  Submit();
  Pass(seconds(59));
  Manager manager;
  Connect(manager);
  ASSERT_THAT(manager.engine.asked, SizeIs(2));
  manager.engine.Tell(0, 40, 0, FinishReason::kLength);
  Run();
  EXPECT_THAT(Of(0).tokens, ElementsAre(40));
  Pass(seconds(60));
  EXPECT_FALSE(Of(1).finish) << "a manager has it, however long it takes";
}

TEST_F(RemoteRequestsTest, WithoutAManagerRequestsFailInTheEnd) {
  Manager first, second;
  Connect(first);
  Submit(2);
  first.engine.Tell(0, 40, 0);
  Run();
  Lose();
  Pass(seconds(30));
  Submit();
  EXPECT_EQ(front_.next_turn(), now_ + seconds(30));
  Pass(seconds(30));
  for (const size_t index : {0u, 1u}) {
    EXPECT_EQ(Of(0, index).finish, FinishReason::kError);
    EXPECT_EQ(Of(0, index).error.code(), StatusCode::kPeerLost);
    EXPECT_THAT(Of(0, index).error.message(), HasSubstr("60 s"));
  }
  EXPECT_FALSE(Of(1).finish) << "it has waited for 30 s";
  EXPECT_TRUE(front_.status().given_up);
  EXPECT_EQ(front_.Submit({.prompt = {1}}, {}, now_).status().code(), StatusCode::kPeerLost);
  Pass(seconds(10));
  Connect(second);
  EXPECT_FALSE(front_.status().given_up);
  EXPECT_THAT(second.engine.asked, SizeIs(1)) << "what has not waited for too long is served";
  Submit();
  EXPECT_THAT(second.engine.asked, SizeIs(2));
}

TEST_F(RemoteRequestsTest, ANewRequestIsRefusedWhereThereIsNoRoom) {
  Manager manager;
  Connect(manager);
  manager.engine.refusal = TryAgain("the queue is full");
  Submit();
  EXPECT_EQ(Of(0).finish, FinishReason::kError);
  EXPECT_EQ(Of(0).error.code(), StatusCode::kTryAgain);
}

TEST_F(RemoteRequestsTest, ARequestThatWasAcceptedWaitsForRoomAtTheNextManager) {
  Manager first, second;
  Connect(first);
  Submit();
  first.engine.Tell(0, 40);
  Run();
  Lose();
  second.engine.refusal = TryAgain("the queue is full");
  Connect(second);
  EXPECT_FALSE(Of(0).finish);
  EXPECT_EQ(front_.next_turn(), now_ + milliseconds(200));
  Pass(milliseconds(200));
  EXPECT_FALSE(Of(0).finish);
  second.engine.refusal = OkStatus();
  Pass(milliseconds(200));
  ASSERT_THAT(second.engine.asked, SizeIs(1));
  second.engine.Tell(0, 41, 0, FinishReason::kLength);
  Run();
  EXPECT_THAT(Of(0).tokens, ElementsAre(40, 41));
}

TEST_F(RemoteRequestsTest, NotWithoutEnd) {
  Manager first, second;
  Connect(first);
  Submit();
  Lose();
  second.engine.refusal = TryAgain("the queue is full");
  Connect(second);
  for (int i = 0; i < 300; ++i) Pass(milliseconds(200));
  EXPECT_EQ(Of(0).finish, FinishReason::kError);
  EXPECT_THAT(Of(0).error.message(), HasSubstr("did not take it"));
}

TEST_F(RemoteRequestsTest, AManagerThatHasGivenUpIsWaitedOut) {
  Manager first, second;
  Connect(first);
  first.engine.refusal = PeerLost("too few nodes");
  Submit();
  EXPECT_FALSE(Of(0).finish) << "its process ends soon, and there may be another one";
  Lose();
  Connect(second);
  EXPECT_THAT(second.engine.asked, SizeIs(1));
}

TEST_F(RemoteRequestsTest, AbortEndsEveryContinuationAtOnce) {
  Manager manager;
  Connect(manager);
  const RequestId id = Submit(2);
  manager.engine.Tell(0, 40, 0, FinishReason::kStop);
  Run();
  front_.Abort(id, now_);
  manager.engine.Tell(0, 50, 1);
  Run();
  EXPECT_EQ(Of(0).finish, FinishReason::kStop);
  EXPECT_EQ(Of(0, 1).finish, FinishReason::kAbort);
  EXPECT_THAT(Of(0, 1).tokens, IsEmpty());
  EXPECT_TRUE(manager.engine.asked[0].aborted);
  front_.Abort(id, now_);
  front_.Stop(id, 1, now_);
  EXPECT_THAT(front_.TakeFrames(), IsEmpty()) << "it is over";
}

TEST_F(RemoteRequestsTest, WhatIsAbortedWhileThereIsNoManagerIsNotAskedForAgain) {
  Manager first, second;
  Connect(first);
  const RequestId id = Submit();
  Submit(2);
  Lose();
  front_.Abort(id, now_);
  front_.Stop(RequestId{id.value + 1}, 1, now_);
  Run();
  EXPECT_EQ(Of(0).finish, FinishReason::kAbort);
  EXPECT_EQ(Of(1, 1).finish, FinishReason::kStop);
  Connect(second);
  ASSERT_THAT(second.engine.asked, SizeIs(1));
  EXPECT_TRUE(second.engine.asked[0].request.told.at(1).over);
}

TEST_F(RemoteRequestsTest, StopEndsOneContinuation) {
  Manager manager;
  Connect(manager);
  const RequestId id = Submit(2);
  front_.Stop(id, 1, now_);
  front_.Stop(id, 1, now_);
  front_.Stop(id, 2, now_);
  front_.Stop(id, -1, now_);
  Run();
  EXPECT_EQ(Of(0, 1).finish, FinishReason::kStop);
  EXPECT_THAT(manager.engine.asked[0].stopped, ElementsAre(1));
  manager.engine.Tell(0, 40, 0, FinishReason::kLength);
  Run();
  EXPECT_THAT(Of(0).tokens, ElementsAre(40));
}

TEST_F(RemoteRequestsTest, AManagerOfAnotherModelIsRefused) {
  Manager other("other"), longer;
  Connect(other);
  EXPECT_EQ(refused_.code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(front_.is_open());
  Lose();
  Manager first;
  Connect(first);
  ASSERT_TRUE(front_.is_open());
  Submit();
  Lose();
  longer.engine.max_len = 200;
  refused_ = OkStatus();
  Connect(longer);
  EXPECT_THAT(refused_.message(), HasSubstr("200"));
  EXPECT_FALSE(front_.is_open());
  EXPECT_THAT(longer.engine.asked, IsEmpty()) << "its tokens would be others";
}

TEST_F(RemoteRequestsTest, WhatAManagerCannotMeanEndsTheConnection) {
  Manager manager;
  Connect(manager);
  Submit(2);
  const auto take = [&](uint64_t id, int index, TokenId token) {
    RequestEvents events;
    events.events.push_back({id, {}});
    events.events[0].event.index = index;
    events.events[0].event.token = token;
    return front_.TakeFrame({FrameType(MessageType::kRequestEvents), Encode(events)}, now_).code();
  };
  EXPECT_EQ(take(1, 2, 40), StatusCode::kCorrupt);
  EXPECT_EQ(take(1, -1, 40), StatusCode::kCorrupt);
  EXPECT_EQ(take(1, 0, kVocab), StatusCode::kCorrupt);
  EXPECT_EQ(take(1, 0, -1), StatusCode::kCorrupt);
  EXPECT_EQ(take(99, 0, 40), StatusCode::kOk) << "a client may have gone";
  EXPECT_EQ(take(1, 1, 40), StatusCode::kOk);
  for (const MessageType type : {MessageType::kFrontOpened, MessageType::kRequestSubmitted,
                                 MessageType::kRequestEvents, MessageType::kEngineStatus}) {
    EXPECT_EQ(front_.TakeFrame({FrameType(type), std::string(20, '\xff')}, now_).code(),
              StatusCode::kCorrupt);
  }
  EXPECT_EQ(front_.TakeFrame({FrameType(MessageType::kMemoryOrder), ""}, now_).code(),
            StatusCode::kCorrupt);
}

TEST_F(RemoteRequestsTest, RefusesWhatNoEngineWouldTake) {
  Manager manager;
  Connect(manager);
  const auto code = [&](GenerateRequest request) {
    return front_.Submit(std::move(request), {}, now_).status().code();
  };
  EXPECT_EQ(code({.prompt = {}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.prompt = {1}, .n = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.prompt = {1}, .max_new_tokens = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.prompt = {1}, .max_new_tokens = 100}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.prompt = {kVocab}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.prompt = {-1}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.prompt = {1}, .max_new_tokens = 99}), StatusCode::kOk);
}

}  // namespace remote_requests_test
}  // namespace lamina::testing
