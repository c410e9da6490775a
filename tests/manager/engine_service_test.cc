// What fronts may ask an engine for, and what becomes of fronts that are hostile or gone.
#include "manager/engine_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "tests/support/played_engine.h"
#include "wire/codec.h"

namespace lamina::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kVocab = 1000;

class EngineServiceTest : public ::testing::Test {
 protected:
  void Turn() {
    while (service_->Turn(now_)) continue;
  }
  template <typename Message>
  void Send(uint64_t connection, MessageType type, const Message& message) {
    port_.Take(connection, {FrameType(type), Encode(message)});
    Turn();
  }
  void Open(uint64_t connection) {
    port_.Connect(connection);
    Send(connection, MessageType::kOpenFront, OpenFront{"tiny", kVocab});
  }
  // The oldest message of this type that was sent to the front and not taken; others are dropped.
  template <typename Message>
  std::optional<Message> Take(uint64_t connection, MessageType type) {
    auto& sent = port_.sent[connection];
    while (!sent.empty()) {
      const ControlFrame frame = std::move(sent.front());
      sent.pop_front();
      if (frame.type == FrameType(type)) return Decode<Message>(frame.payload).value();
    }
    return std::nullopt;
  }
  static GenerateRequest Request(int n = 1) {
    GenerateRequest request;
    request.prompt = {1, 2, 3};
    request.n = n;
    return request;
  }
  void Submit(uint64_t connection, uint64_t id, GenerateRequest request = Request()) {
    Send(connection, MessageType::kSubmitRequest, SubmitRequest{id, std::move(request)});
  }
  StatusCode AnswerTo(uint64_t connection, GenerateRequest request) {
    Submit(connection, ++last_id_, std::move(request));
    const auto answer = Take<RequestSubmitted>(connection, MessageType::kRequestSubmitted);
    EXPECT_TRUE(answer);
    EXPECT_EQ(answer->id, last_id_);
    return answer->status.code();
  }

  TimePoint now_{};
  uint64_t last_id_ = 100;
  PlayedEngine engine_;
  PlayedPort port_;
  EngineServiceOptions options_{.model = "tiny", .vocab_size = kVocab, .max_fronts = 2};
  std::unique_ptr<EngineService> service_ =
      std::make_unique<EngineService>(options_, engine_, port_);
};

TEST_F(EngineServiceTest, TokensGoToTheFrontThatAskedForThem) {
  Open(7);
  Open(8);
  const auto opened = Take<FrontOpened>(7, MessageType::kFrontOpened);
  ASSERT_TRUE(opened && opened->status.ok());
  EXPECT_EQ(opened->max_model_len, 100);
  EXPECT_THAT(opened->eos_tokens, ElementsAre(2));
  EXPECT_TRUE(port_.served.contains(7) && port_.served.contains(8));

  Submit(7, 1, Request(2));
  Submit(8, 1);
  ASSERT_EQ(engine_.asked.size(), 2u);
  engine_.Tell(0, 40, 0);
  engine_.Tell(0, 41, 1, FinishReason::kLength);
  engine_.Tell(1, 50, 0, FinishReason::kStop);
  Turn();
  const auto events = Take<RequestEvents>(7, MessageType::kRequestEvents);
  ASSERT_TRUE(events);
  ASSERT_EQ(events->events.size(), 2u) << "they go together";
  EXPECT_EQ(events->events[0].event.token, 40);
  EXPECT_EQ(events->events[1].event.index, 1);
  EXPECT_EQ(events->events[1].event.finish, FinishReason::kLength);
  EXPECT_EQ(Take<RequestEvents>(8, MessageType::kRequestEvents)->events[0].event.token, 50);
  EXPECT_EQ(service_->num_requests(), 1u) << "continuation 0 of the first one is not over";
}

TEST_F(EngineServiceTest, ContinuationsThatAreOverAreNotWaitedFor) {
  Open(7);
  GenerateRequest request = Request(2);
  request.told = {{.tokens = {40}}, {.tokens = {50}, .over = true}};
  Submit(7, 1, request);
  ASSERT_EQ(engine_.asked.size(), 1u);
  EXPECT_THAT(engine_.asked[0].request.told[0].tokens, ElementsAre(40));
  engine_.Tell(0, 41, 0, FinishReason::kLength);
  Turn();
  EXPECT_EQ(service_->num_requests(), 0u);
}

TEST_F(EngineServiceTest, WhatTheEngineRefusesIsAnswered) {
  Open(7);
  engine_.refusal = TryAgain("the queue is full");
  EXPECT_EQ(AnswerTo(7, Request()), StatusCode::kTryAgain);
  EXPECT_EQ(service_->num_requests(), 0u);
}

TEST_F(EngineServiceTest, AbortAndStopReachTheEngine) {
  Open(7);
  Submit(7, 1, Request(3));
  Send(7, MessageType::kStopContinuation, StopContinuation{1, 2});
  EXPECT_THAT(engine_.asked[0].stopped, ElementsAre(2));
  Send(7, MessageType::kAbortRequest, AbortRequest{1});
  EXPECT_TRUE(engine_.asked[0].aborted);
  engine_.Tell(0, 40);
  Turn();
  EXPECT_FALSE(Take<RequestEvents>(7, MessageType::kRequestEvents)) << "nobody wants it any more";
  Send(7, MessageType::kAbortRequest, AbortRequest{1});
  Send(7, MessageType::kStopContinuation, StopContinuation{99, 0});
  EXPECT_FALSE(port_.closed.contains(7)) << "the request was over when the front sent this";
}

TEST_F(EngineServiceTest, AFrontThatIsGoneLosesItsRequests) {
  Open(7);
  Open(8);
  Submit(7, 1);
  Submit(8, 1);
  port_.Break(7);
  Turn();
  EXPECT_TRUE(engine_.asked[0].aborted);
  EXPECT_FALSE(engine_.asked[1].aborted);
  EXPECT_TRUE(port_.closed.contains(7));
  engine_.Tell(0, 40, 0, FinishReason::kAbort);  // the engine says so
  Turn();
  EXPECT_EQ(service_->num_requests(), 1u);
}

TEST_F(EngineServiceTest, ItsEndAbortsEverything) {
  Open(7);
  Submit(7, 1);
  service_.reset();
  EXPECT_TRUE(engine_.asked[0].aborted);
  EXPECT_FALSE(Take<RequestEvents>(7, MessageType::kRequestEvents));
}

TEST_F(EngineServiceTest, FrontsHearOfTheStatusByTheClock) {
  Open(7);
  EXPECT_EQ(Take<EngineStatus>(7, MessageType::kEngineStatus)->detail, "played");
  engine_.detail = "changed";
  now_ += milliseconds(99);
  Turn();
  EXPECT_FALSE(Take<EngineStatus>(7, MessageType::kEngineStatus));
  EXPECT_EQ(service_->next_turn(), now_ + milliseconds(1));
  now_ += milliseconds(1);
  Turn();
  EXPECT_EQ(Take<EngineStatus>(7, MessageType::kEngineStatus)->detail, "changed");
  port_.Break(7);
  Turn();
  EXPECT_EQ(service_->next_turn(), TimePoint::max()) << "nobody is there who could hear it";
}

TEST_F(EngineServiceTest, FrontsOfAnotherModelAreRefused) {
  port_.Connect(7);
  Send(7, MessageType::kOpenFront, OpenFront{"other", kVocab});
  const auto opened = Take<FrontOpened>(7, MessageType::kFrontOpened);
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(opened->status.message(), HasSubstr("'tiny'"));
  EXPECT_THAT(opened->status.message(), HasSubstr("'other'"));
  EXPECT_FALSE(port_.served.contains(7));
  Submit(7, 1);
  EXPECT_TRUE(engine_.asked.empty());
  EXPECT_TRUE(port_.closed.contains(7));
}

TEST_F(EngineServiceTest, SoManyFrontsAndNoMore) {
  Open(7);
  Open(8);
  Open(9);
  EXPECT_EQ(Take<FrontOpened>(9, MessageType::kFrontOpened)->status.code(), StatusCode::kTryAgain);
  EXPECT_FALSE(port_.served.contains(9)) << "it is a stranger still, with little room";
  Open(8);
  EXPECT_TRUE(Take<FrontOpened>(8, MessageType::kFrontOpened)->status.ok()) << "it has a place";
  port_.Break(7);
  Turn();
  Open(9);
  EXPECT_TRUE(Take<FrontOpened>(9, MessageType::kFrontOpened)->status.ok());
}

TEST_F(EngineServiceTest, WhoBreaksTheProtocolIsLost) {
  uint64_t connection = 10;
  const auto expect_lost = [&](ControlFrame frame, bool opened) {
    if (opened) Open(connection);
    port_.Take(connection, std::move(frame));
    Turn();
    EXPECT_TRUE(port_.closed.contains(connection)) << connection;
    ++connection;
  };
  for (const bool opened : {false, true}) {
    for (const MessageType type : {MessageType::kOpenFront, MessageType::kSubmitRequest,
                                   MessageType::kAbortRequest, MessageType::kStopContinuation}) {
      expect_lost({FrameType(type), std::string(20, '\xff')}, opened);
    }
    expect_lost({FrameType(MessageType::kStepResult), ""}, opened);
    expect_lost({4711, "x"}, opened);
  }
  expect_lost({FrameType(MessageType::kAbortRequest), Encode(AbortRequest{1})}, false);
  EXPECT_TRUE(engine_.asked.empty());

  Open(7);
  Submit(7, 1);
  Submit(7, 1);
  EXPECT_TRUE(port_.closed.contains(7)) << "a number that is in use";
  EXPECT_TRUE(engine_.asked[0].aborted);
}

TEST_F(EngineServiceTest, AFrontThatReadsNothingIsLost) {
  Open(7);
  Submit(7, 1);
  port_.full.insert(7);
  engine_.Tell(0, 40);
  Turn();
  EXPECT_TRUE(port_.closed.contains(7));
  EXPECT_TRUE(engine_.asked[0].aborted);
}

TEST_F(EngineServiceTest, WhatNoEngineCouldDoIsRefused) {
  Open(7);
  const auto refused = [&](auto change) {
    GenerateRequest request = Request();
    change(request);
    EXPECT_EQ(AnswerTo(7, request), StatusCode::kInvalidArgument);
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, inf, -1.0f}) {
    refused([&](GenerateRequest& of) { of.sampling.temperature = bad; });
    refused([&](GenerateRequest& of) { of.sampling.top_p = bad; });
    refused([&](GenerateRequest& of) { of.sampling.min_p = bad; });
    refused([&](GenerateRequest& of) { of.sampling.repetition_penalty = bad; });
  }
  for (const float bad : {nan, inf}) {
    refused([&](GenerateRequest& of) { of.sampling.frequency_penalty = bad; });
    refused([&](GenerateRequest& of) { of.sampling.presence_penalty = bad; });
    refused([&](GenerateRequest& of) { of.sampling.logit_bias = {{3, bad}}; });
  }
  refused([](GenerateRequest& of) { of.sampling.top_p = 0; });
  refused([](GenerateRequest& of) { of.sampling.top_k = -1; });
  refused([](GenerateRequest& of) { of.sampling.num_logprobs = -2; });
  refused([](GenerateRequest& of) { of.sampling.num_logprobs = 1 << 30; });
  refused([](GenerateRequest& of) { of.sampling.num_prompt_logprobs = -2; });
  refused([](GenerateRequest& of) { of.sampling.num_prompt_logprobs = 1 << 30; });
  refused([](GenerateRequest& of) { of.sampling.min_tokens = -1; });
  refused([](GenerateRequest& of) { of.sampling.banned = {3}; });
  for (const TokenId outside : {-1, static_cast<TokenId>(kVocab)}) {
    refused([&](GenerateRequest& of) { of.sampling.logit_bias = {{outside, 1.0f}}; });
    refused([&](GenerateRequest& of) { of.stop_tokens = {outside}; });
  }
  refused([](GenerateRequest& of) { of.prompt_index = uint64_t{1} << 32; });
  refused([](GenerateRequest& of) { of.sampling.grammar.assign(kMaxGrammarBytes + 1, 'x'); });
  refused([](GenerateRequest& of) { of.sampling.allowed_tokens = "x"; });
  refused([](GenerateRequest& of) { of.sampling.bad_words = {{}}; });
  refused([](GenerateRequest& of) { of.sampling.bad_words = {{{-1}}}; });
  refused([](GenerateRequest& of) { of.sampling.bad_words.assign(kMaxBadWords + 1, {{1}}); });
  EXPECT_TRUE(engine_.asked.empty());
  EXPECT_EQ(AnswerTo(7, Request()), StatusCode::kOk);
}

TEST_F(EngineServiceTest, GroupsOfTwoFrontsAreDifferentGroups) {
  Open(7);
  Open(8);
  GenerateRequest request = Request();
  request.prefix_group = 5;
  Submit(7, 1, request);
  Submit(7, 2, request);
  Submit(8, 1, request);
  EXPECT_EQ(engine_.asked[0].request.prefix_group, engine_.asked[1].request.prefix_group);
  EXPECT_NE(engine_.asked[0].request.prefix_group, engine_.asked[2].request.prefix_group);
}

}  // namespace
}  // namespace lamina::testing
