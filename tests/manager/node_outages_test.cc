#include "manager/node_outages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina::testing {
namespace node_outages_test {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr NodeId kNode{1}, kOther{2};

class NodeOutagesTest : public ::testing::Test {
 protected:
  NodeOutages outages_{RetryOptions()};
  TimePoint now_{hours(1)};
  TimePoint last_ = now_;
};

TEST_F(NodeOutagesTest, ANodeIsLostOnceWithItsFirstReason) {
  EXPECT_TRUE(outages_.Lose(kNode, "a cut cable", now_));
  EXPECT_FALSE(outages_.Lose(kNode, "silence", now_));
  EXPECT_EQ(outages_.lost().at(kNode), "a cut cable");
  outages_.TakeBack(kNode, now_);
  EXPECT_TRUE(outages_.lost().empty());
  EXPECT_TRUE(outages_.Lose(kNode, "silence", now_));
}

TEST_F(NodeOutagesTest, TriesInVainFollowEachOtherMoreAndMoreSlowly) {
  outages_.Lose(kNode, "", now_);
  EXPECT_EQ(outages_.next_try() - now_, seconds(1));
  for (const int wait : {1, 2, 4, 8, 10, 10}) {
    now_ = outages_.next_try();
    outages_.Tried({kNode}, now_);
    EXPECT_EQ(outages_.next_try() - now_, seconds(wait));
  }
  outages_.TakeBack(kNode, now_);
  EXPECT_EQ(outages_.next_try(), TimePoint::max());
}

TEST(RetriesTest, BeginAnew) {
  TimePoint now(hours(1));
  Retries retries{RetryOptions()};
  for (const int begin : {0, 5}) {
    retries.Begin(now + seconds(begin));
    EXPECT_EQ(retries.next() - now, seconds(begin));
    for (const int wait : {1, 2, 4}) {
      now = retries.next();
      retries.Tried(now);
      EXPECT_EQ(retries.next() - now, seconds(wait));
    }
  }
}

// Each return costs those that serve all of their KV.
TEST_F(NodeOutagesTest, ANodeThatComesAndGoesHasToWaitLongerEachTime) {
  outages_.Lose(kNode, "", now_);
  for (const int wait : {4, 16, 64, 256, 300, 300}) {
    outages_.TakeBack(kNode, now_);
    now_ += seconds(1);
    outages_.Lose(kNode, "", now_);
    EXPECT_EQ(outages_.next_try() - now_, seconds(wait));
  }
  outages_.TakeBack(kNode, now_);
  now_ += minutes(10);
  outages_.Lose(kNode, "", now_);
  EXPECT_EQ(outages_.next_try() - now_, seconds(1)) << "it was back for long";
}

TEST_F(NodeOutagesTest, ANodeThatWasNeverLostBeforeDoesNotPayForOthers) {
  outages_.Lose(kNode, "", now_);
  outages_.TakeBack(kNode, now_);
  outages_.Lose(kOther, "", now_);
  EXPECT_EQ(outages_.next_try() - now_, seconds(1));
  outages_.Lose(kNode, "", now_);
  EXPECT_EQ(outages_.next_try() - now_, seconds(1));
  EXPECT_THAT(outages_.Due(now_), IsEmpty());
  EXPECT_THAT(outages_.Due(now_ + seconds(3)), ElementsAre(kOther));
  EXPECT_THAT(outages_.Due(now_ + seconds(4)), ElementsAre(kNode, kOther));
}

TEST_F(NodeOutagesTest, NoOtherWaitsForANodeThatComesAndGoes) {
  outages_.Lose(kOther, "", now_);
  for (const int wait : {1, 2, 4, 8, 10, 10}) {
    outages_.Lose(kNode, "", now_);
    outages_.TakeBack(kNode, now_);
    outages_.Lose(kNode, "", now_);
    while (!outages_.Due(now_).contains(kOther)) now_ += seconds(1);
    EXPECT_LE(now_ - last_, seconds(wait));
    last_ = now_;
    outages_.Tried(outages_.Due(now_), now_);
  }
}

// A look may take as long as weights take to load.
TEST_F(NodeOutagesTest, WhatBecomesDueDuringALookWasNotTried) {
  outages_.Lose(kNode, "", now_);
  outages_.Lose(kOther, "", now_ + seconds(5));
  const std::set<NodeId> asked = outages_.Due(now_ + seconds(1));
  ASSERT_THAT(asked, ElementsAre(kNode));
  now_ += seconds(20);
  outages_.Tried(asked, now_);
  EXPECT_THAT(outages_.Due(now_), ElementsAre(kOther));
  EXPECT_EQ(outages_.next_try(), last_ + seconds(6)) << "at once, not a wait later";
}

TEST_F(NodeOutagesTest, ANodeThatIsLostAnewDuringALookKeepsItsTime) {
  outages_.Lose(kNode, "", now_);
  now_ += seconds(2);
  const std::set<NodeId> asked = outages_.Due(now_);
  outages_.TakeBack(kNode, now_);
  outages_.Lose(kNode, "", now_);
  outages_.Tried(asked, now_);
  EXPECT_EQ(outages_.next_try() - now_, seconds(4));
}

// Each alone would be found, and not taken because the other is not due, for ever.
TEST_F(NodeOutagesTest, NodesThatHoldTheSameTokensAreTriedTogether) {
  const NodeId group{7};
  outages_.Lose(kNode, "", now_, group);
  outages_.Lose(kOther, "", now_ + milliseconds(500), group);
  for (const int wait : {1, 1, 2, 4}) {
    EXPECT_THAT(outages_.Due(outages_.next_try() - milliseconds(1)), IsEmpty());
    const TimePoint before = now_;
    now_ = outages_.next_try();
    EXPECT_LE(now_ - before, seconds(wait) + milliseconds(500));
    ASSERT_THAT(outages_.Due(now_), ElementsAre(kNode, kOther));
    outages_.Tried(outages_.Due(now_), now_);
  }
  outages_.TakeBack(kOther, now_);
  EXPECT_THAT(outages_.Due(now_ + seconds(10)), ElementsAre(kNode));
}

}  // namespace node_outages_test
}  // namespace lamina::testing
