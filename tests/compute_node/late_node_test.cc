// Memory nodes that are late, where several compute nodes run a step one after the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/compute_node/remote_attention_fixture.h"

namespace lamina::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr NodeId kMemory{1}, kSelf{5}, kOther{7};

class LateNodeTest : public RemoteAttentionTest {
 protected:
  void ConnectTo(const std::string& address) {
    RemoteAttentionOptions options = Options();
    options.self = kSelf;
    options.suspect_after = milliseconds(50);
    auto attention =
        RemoteAttention::Create(options, Loopback(), {{kMemory, "m1", address, kMemory, 0, 1}},
                                device_, Deadline::After(seconds(10)));
    ASSERT_TRUE(attention.ok()) << attention.status();
    attention_ = std::move(*attention);
  }

  // Polls until a memory node's state is told.
  PeerState AwaitState() {
    const Deadline deadline = Deadline::After(seconds(10));
    while (!deadline.Passed()) {
      attention_->Poll();
      const std::vector<PeerState> states = attention_->TakePeerStates();
      if (!states.empty()) return states.front();
      std::this_thread::yield();
    }
    ADD_FAILURE() << "no state";
    return {};
  }
};

TEST_F(LateNodeTest, OneThatIsLateToStoreAPromptIsSuspendedAndThePromptFails) {
  PlayedMemoryNode m1("memory-1", TwiceQ);
  ASSERT_NO_FATAL_FAILURE(ConnectTo("loopback=memory-1"));
  m1.pauses = true;
  const TimePoint since = Clock::now();
  const AttentionValues values = Prompt(2, 3);
  step_->StartFor(kOther, values);
  while (!step_->Stored()) std::this_thread::yield();
  EXPECT_GE(Clock::now() - since, milliseconds(50));
  EXPECT_EQ(step_->failures().at(SequenceId{9}).code(), StatusCode::kTimeout);
  EXPECT_THAT(step_->suspended(), ElementsAre(SuspendedNode{kMemory, kSelf, 1}));
  EXPECT_THAT(attention_->LostNodes(), IsEmpty());
  step_->End();
  EXPECT_EQ(step_->patience_ends(), TimePoint::max());
  const PeerState late = AwaitState();
  EXPECT_EQ(late.state, PeerState::State::kSuspended);
  EXPECT_EQ(late.suspension, 1u);
  EXPECT_TRUE(attention_->suspends());

  m1.pauses = false;
  const PeerState back = AwaitState();
  EXPECT_EQ(back.state, PeerState::State::kResumed);
  EXPECT_EQ(back.suspension, 1u);
  EXPECT_FALSE(attention_->suspends());
  attention_.reset();
}

// The compute node that ran the slice before has suspended it. Its answer is still to come here,
// and is not taken for that of a later step.
TEST_F(LateNodeTest, WhatItWasAskedForElsewhereIsNotWaitedForAndIsOwed) {
  PlayedMemoryNode m1("memory-1", TwiceQ);
  ASSERT_NO_FATAL_FAILURE(ConnectTo("loopback=memory-1"));
  Decode(1, {{100, 1}});
  attention_->Poll();
  m1.pauses = true;
  work_ = {{.sequence = SequenceId{100}, .node = kMemory, .position = 6}};
  step_ = &attention_->Begin({0, StepId{2}, work_});
  step_->Start({0, q_.data(), k_.data(), v_.data(), out_.data()});
  EXPECT_FALSE(step_->Finish());
  const SuspendedNode elsewhere{kMemory, kOther, 3};
  step_->GoOnWithout({&elsewhere, 1});
  step_->GoOnWithout({&elsewhere, 1});  // that is known
  EXPECT_TRUE(step_->Finish());
  EXPECT_THAT(step_->late(), ElementsAre(SequenceId{100}));
  EXPECT_TRUE(step_->failures().empty());
  EXPECT_THAT(step_->suspended(), ElementsAre(elsewhere, SuspendedNode{kMemory, kSelf, 1}));
  step_->End();
  EXPECT_EQ(AwaitState().state, PeerState::State::kSuspended);

  m1.pauses = false;
  EXPECT_EQ(AwaitState().state, PeerState::State::kResumed);
  Decode(4, {{100, 1}}, 1);
  EXPECT_TRUE(step_->failures().empty());
  EXPECT_THAT(step_->suspended(), IsEmpty());
  ExpectTwiceQ(0);
  attention_.reset();
}

TEST_F(LateNodeTest, AStepThatHasGoneOnWithoutItElsewhereAsksItForNothing) {
  std::atomic<int> num_asked{0};
  PlayedMemoryNode m1("memory-1", [&](const ReceivedMessage& message) {
    ++num_asked;
    return TwiceQ(message);
  });
  ASSERT_NO_FATAL_FAILURE(ConnectTo("loopback=memory-1"));
  Decode(1, {{100, 1}});
  EXPECT_EQ(num_asked, 1);
  work_ = {{.sequence = SequenceId{100}, .node = kMemory, .position = 6}};
  step_ = &attention_->Begin({0, StepId{2}, work_});
  step_->Expect(0, out_.data(), {});
  const SuspendedNode elsewhere{kMemory, kOther, 1};
  step_->GoOnWithout({&elsewhere, 1});
  EXPECT_TRUE(step_->Finish());
  step_->StartFor(kOther, {1, q_.data(), k_.data(), v_.data(), out_.data()});
  EXPECT_THAT(step_->asked(), IsEmpty());
  EXPECT_TRUE(step_->Stored());
  EXPECT_THAT(step_->late(), ElementsAre(SequenceId{100}));
  EXPECT_THAT(step_->suspended(), ElementsAre(elsewhere));
  step_->End();
  EXPECT_FALSE(attention_->suspends()) << "nothing is owed here";
  Decode(4, {{100, 1}});
  ExpectTwiceQ(0);
  EXPECT_EQ(num_asked, 2);
  attention_.reset();
}

}  // namespace
}  // namespace lamina::testing
