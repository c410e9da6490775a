// Which of several failures of a sequence is told, and that its cause is told with it.
#include "compute_node/step_outcome.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/played_attention.h"

namespace lamina {
namespace {

constexpr SequenceId kA{1}, kB{2}, kC{3}, kD{4};

class StepOutcomeTest : public ::testing::Test {
 protected:
  StepOutcomeTest() { outcome_.Begin({}, trace_); }

  // What is told of the sequence.
  static void Expect(const StepResult& result, SequenceId sequence, FailureCause cause,
                     const std::string& why) {
    const auto told = std::ranges::find(result.failed, sequence, &FailedSequence::sequence);
    ASSERT_NE(told, result.failed.end()) << sequence;
    EXPECT_EQ(told->cause, cause) << sequence;
    EXPECT_EQ(told->why.message(), why) << sequence;
  }

  StepTrace trace_{1};
  StepOutcome outcome_;
};

TEST_F(StepOutcomeTest, ALossOfKvIsToldBeforeTheRequestsOwnFaultAndTheFirstOfTwoAlike) {
  outcome_.Fail(kA, FailureCause::kRequest, InternalError("first"));
  outcome_.Fail(kA, FailureCause::kRequest, InternalError("second"));
  outcome_.Fail(kB, FailureCause::kKvLost, PeerLost("first"));
  outcome_.Fail(kB, FailureCause::kKvLost, PeerLost("second"));
  outcome_.Fail(kC, FailureCause::kRequest, InternalError("first"));
  outcome_.Fail(kC, FailureCause::kKvLost, PeerLost("second"));
  outcome_.Fail(kD, FailureCause::kKvLost, PeerLost("first"));
  outcome_.Fail(kD, FailureCause::kRequest, InternalError("second"));
  EXPECT_FALSE(outcome_.goes_on(kC));
  EXPECT_TRUE(outcome_.goes_on(SequenceId{5}));
  outcome_.Complete();
  const StepResult result = outcome_.Take();
  EXPECT_EQ(result.failed.size(), 4u);
  Expect(result, kA, FailureCause::kRequest, "first");
  Expect(result, kB, FailureCause::kKvLost, "first");
  Expect(result, kC, FailureCause::kKvLost, "second");
  Expect(result, kD, FailureCause::kKvLost, "first");
}

// Whatever code a memory node has answered.
TEST_F(StepOutcomeTest, WhatFailsInAttentionHasLostItsKv) {
  PlayedAttention attention({{kA, InternalError("a")}, {kB, NotFound("b")}});
  outcome_.Fail(kB, FailureCause::kRequest, InternalError("before"));
  outcome_.Account(attention, attention, 0);
  const StepResult so_far = outcome_.SoFar();
  Expect(so_far, kA, FailureCause::kKvLost, "a");
  Expect(so_far, kB, FailureCause::kKvLost, "b");
}

TEST_F(StepOutcomeTest, WhatOtherNodesTellKeepsItsCause) {
  StepResult before, rank;
  before.failed = {{kA, PeerLost("before"), FailureCause::kKvLost},
                   {kB, InternalError("before"), FailureCause::kRequest}};
  rank.failed = {{kA, InternalError("rank"), FailureCause::kRequest},
                 {kB, PeerLost("rank"), FailureCause::kKvLost},
                 {kC, InternalError("rank"), FailureCause::kRequest}};
  outcome_.GoOnFrom(before);
  outcome_.AddRank(rank);
  outcome_.Complete();
  const StepResult result = outcome_.Take();
  EXPECT_EQ(result.failed.size(), 3u);
  Expect(result, kA, FailureCause::kKvLost, "before");
  Expect(result, kB, FailureCause::kKvLost, "rank");
  Expect(result, kC, FailureCause::kRequest, "rank");
}

TEST_F(StepOutcomeTest, WhatIsLateElsewhereGetsNoTokenHere) {
  constexpr SuspendedNode kHere{NodeId{1}, NodeId{2}, 1}, kThere{NodeId{1}, NodeId{3}, 4};
  StepResult before, rank;
  before.late = {kA};
  before.suspended = {kHere};
  rank.late = {kB};
  rank.suspended = {kThere};
  outcome_.GoOnFrom(before);
  EXPECT_FALSE(outcome_.goes_on(kA));
  EXPECT_EQ(outcome_.SoFar().late, std::vector{kA}) << "it is told to the next one";
  outcome_.AddRank(rank);
  EXPECT_FALSE(outcome_.goes_on(kB));
  EXPECT_TRUE(outcome_.goes_on(kC));
  outcome_.Complete();
  const StepResult result = outcome_.Take();
  EXPECT_TRUE(result.failed.empty());
  EXPECT_TRUE(result.late.empty()) << "between compute nodes only";
  EXPECT_EQ(result.suspended, (std::vector{kHere, kThere}));
  outcome_.Begin({}, trace_);
  EXPECT_TRUE(outcome_.goes_on(kA));
}

TEST_F(StepOutcomeTest, TheNextStepBeginsWithoutFailures) {
  outcome_.Fail(kA, FailureCause::kKvLost, PeerLost("lost"));
  outcome_.Begin({}, trace_);
  EXPECT_TRUE(outcome_.goes_on(kA));
  EXPECT_TRUE(outcome_.SoFar().failed.empty());
}

}  // namespace
}  // namespace lamina
