#include "frontend/node_outages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina::testing {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr NodeId kNode{1}, kOther{2};

class NodeOutagesTest : public ::testing::Test {
 protected:
  NodeOutages outages_{RetryOptions()};
  TimePoint now_{hours(1)};
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
    outages_.Tried(now_);
    EXPECT_EQ(outages_.next_try() - now_, seconds(wait));
  }
  outages_.Hurry(now_);
  EXPECT_EQ(outages_.next_try(), now_);
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
  EXPECT_EQ(outages_.next_try() - now_, seconds(4));
  outages_.TakeBack(kOther, now_);
  outages_.Lose(kOther, "", now_);
  EXPECT_EQ(outages_.next_try() - now_, seconds(4)) << "they are looked for together";
}

}  // namespace
}  // namespace lamina::testing
