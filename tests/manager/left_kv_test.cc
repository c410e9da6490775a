#include "manager/left_kv.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

constexpr NodeId kM0{2}, kM1{5}, kM2{11};

using Slots = std::vector<TokenSlot>;

NodeId ItsOwn(NodeId node) { return node; }

KvHandle Handle(uint64_t sequence, uint64_t manager = 9) { return {SequenceId{sequence}, manager}; }

TEST(LeftKv, IsWhereOnePoolHasIt) {
  const auto left = FindLeft({{kM0, {9, {{SequenceId{1}, {3, 4}}, {SequenceId{2}, {8}}}}},
                              {kM1, {9, {{SequenceId{3}, {5}}}}},
                              {kM2, {}}},
                             ItsOwn);
  ASSERT_EQ(left.size(), 3u);
  EXPECT_EQ(left.at(Handle(1)).pool, kM0);
  EXPECT_EQ(left.at(Handle(1)).slots, (Slots{3, 4}));
  EXPECT_EQ(left.at(Handle(2)).slots, Slots{8});
  EXPECT_EQ(left.at(Handle(3)).pool, kM1);
}

TEST(LeftKv, OfASequenceOnTwoPoolsNothingIsSure) {
  const auto left = FindLeft({{kM0, {9, {{SequenceId{1}, {3, 4}}}}},
                              {kM1, {9, {{SequenceId{1}, {5}}}}},
                              {kM2, {9, {{SequenceId{1}, {6}}}}}},
                             ItsOwn);
  EXPECT_TRUE(left.empty());
}

TEST(LeftKv, NumbersOfTwoManagersAreTwoSequences) {
  const auto left =
      FindLeft({{kM0, {9, {{SequenceId{1}, {3, 4}}}}}, {kM1, {8, {{SequenceId{1}, {5}}}}}}, ItsOwn);
  EXPECT_EQ(left.at(Handle(1, 9)).pool, kM0);
  EXPECT_EQ(left.at(Handle(1, 8)).pool, kM1);
}

TEST(LeftKv, NodesOfAPoolHaveToAgree) {
  const auto pool_of = [](NodeId node) { return node == kM1 ? kM0 : node; };
  const auto left = FindLeft(
      {{kM0, {9, {{SequenceId{1}, {3, 4, 5}}, {SequenceId{2}, {8}}, {SequenceId{4}, {1}}}}},
       {kM1, {9, {{SequenceId{1}, {3, 4}}, {SequenceId{3}, {8}}, {SequenceId{4}, {2}}}}}},
      pool_of);
  ASSERT_EQ(left.size(), 1u) << "of the others one node has nothing, or something else";
  EXPECT_EQ(left.at(Handle(1)).slots, (Slots{3, 4}));
  EXPECT_TRUE(FindLeft({{kM0, {9, {{SequenceId{1}, {3}}}}}, {kM1, {}}}, pool_of).empty());
}

TEST(LeftKv, ANodeThatNamesASlotTwiceIsNotBelieved) {
  EXPECT_TRUE(FindLeft({{kM0, {9, {{SequenceId{1}, {3, 4, 3}}}}}}, ItsOwn).empty());
}

}  // namespace
}  // namespace lamina
