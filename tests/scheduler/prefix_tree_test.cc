#include "scheduler/prefix_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

using Tokens = std::vector<TokenId>;
using Slots = std::vector<TokenSlot>;

const auto kIdle = [](TokenSlot) { return false; };

Slots Insert(PrefixTree& tree, const Tokens& tokens, const Slots& slots) {
  const std::span<const TokenSlot> learned = tree.Insert(tokens, slots);
  return {learned.begin(), learned.end()};
}

TEST(PrefixTree, FindsTheLongestBeginning) {
  PrefixTree tree;
  EXPECT_THAT(Insert(tree, {1, 2, 3, 4}, {10, 11, 12, 13}), ElementsAre(10, 11, 12, 13));
  EXPECT_EQ(tree.Length(Tokens{1, 2, 3, 4, 5}), 4);
  EXPECT_EQ(tree.Length(Tokens{1, 2, 9}), 2);
  EXPECT_EQ(tree.Length(Tokens{2, 3}), 0);
  EXPECT_EQ(tree.Length({}), 0);
  EXPECT_THAT(tree.Take(Tokens{1, 2, 9}), ElementsAre(10, 11));
  EXPECT_THAT(tree.Take(Tokens{1, 2, 3, 4, 5}), ElementsAre(10, 11, 12, 13))
      << "the cut changed nothing";
  EXPECT_THAT(tree.Take(Tokens{7}), IsEmpty());
}

TEST(PrefixTree, LearnsOnlyWhatItDoesNotKnow) {
  PrefixTree tree;
  Insert(tree, {1, 2, 3}, {10, 11, 12});
  EXPECT_THAT(Insert(tree, {1, 2, 3}, {20, 21, 22}), IsEmpty());
  EXPECT_THAT(Insert(tree, {1, 2, 5, 6}, {20, 21, 22, 23}), ElementsAre(22, 23));
  EXPECT_THAT(tree.Take(Tokens{1, 2, 5, 6}), ElementsAre(10, 11, 22, 23));
  EXPECT_EQ(tree.num_tokens(), 5);
}

TEST(PrefixTree, EvictsWhatWasUsedLongestAgoFromTheEnd) {
  PrefixTree tree;
  Insert(tree, {1, 2, 3}, {10, 11, 12});
  Insert(tree, {1, 2, 7}, {10, 11, 15});
  Insert(tree, {8, 9}, {18, 19});
  tree.Take(Tokens{1, 2, 3});
  EXPECT_THAT(tree.Evict(1, kIdle), ElementsAre(15));
  EXPECT_THAT(tree.Evict(1, kIdle), ElementsAre(19)) << "of an edge only as much as is wanted";
  EXPECT_THAT(tree.Evict(2, kIdle), ElementsAre(18, 12));
  EXPECT_EQ(tree.Length(Tokens{1, 2, 3}), 2);
  EXPECT_THAT(tree.Evict(100, kIdle), ElementsAre(10, 11));
  EXPECT_EQ(tree.num_tokens(), 0);
}

TEST(PrefixTree, EvictsWhatIsInUseOnlyWithWhatStandsBeforeIt) {
  PrefixTree tree;
  Insert(tree, {1, 2}, {10, 11});
  Insert(tree, {1, 2, 3}, {20, 21, 22});  // by a sequence whose own 1 and 2 are in slots 20 and 21
  Insert(tree, {5}, {15});
  const auto in_use = [](TokenSlot slot) { return slot == 22; };
  EXPECT_THAT(tree.Evict(1, in_use), ElementsAre(15));
  EXPECT_THAT(tree.Evict(1, in_use), ElementsAre(22, 10, 11));
  Insert(tree, {3}, {22});
  EXPECT_THAT(tree.Evict(1, in_use), IsEmpty());
}

TEST(PrefixTree, WithdrawForgetsFromTheFirstSlotThatIsTheSame) {
  PrefixTree tree;
  Insert(tree, {1, 2, 3, 4}, {10, 11, 12, 13});
  Insert(tree, {1, 2, 3, 5, 6}, {10, 11, 12, 20, 21});
  Insert(tree, {7}, {30});
  EXPECT_THAT(tree.Withdraw(Tokens{1, 2, 3, 4}, Slots{50, 51, 52, 53}), IsEmpty())
      << "computed by another";
  EXPECT_THAT(tree.Withdraw(Tokens{1, 2, 3, 5, 6, 8}, Slots{50, 51, 52, 20, 21, 22}),
              ElementsAre(20, 21));
  EXPECT_EQ(tree.Length(Tokens{1, 2, 3, 5, 6}), 3);
  EXPECT_EQ(tree.Length(Tokens{1, 2, 3, 4}), 4);
  EXPECT_THAT(tree.Withdraw(Tokens{1, 2}, Slots{50, 11}), UnorderedElementsAre(11, 12, 13))
      << "with what follows";
  EXPECT_EQ(tree.Length(Tokens{1, 2, 3, 4}), 1);
  EXPECT_THAT(tree.Withdraw(Tokens{1}, Slots{10}), ElementsAre(10));
  EXPECT_THAT(tree.Withdraw(Tokens{9}, Slots{1}), IsEmpty());
  EXPECT_EQ(tree.num_tokens(), 1);
}

// Against a map from every beginning to its slot.
TEST(PrefixTree, RandomTextsAgreeWithAMap) {
  std::mt19937 random(5);
  PrefixTree tree;
  std::map<Tokens, TokenSlot> known;
  TokenSlot next_slot = 0;
  for (int i = 0; i < 5000; ++i) {
    Tokens tokens(1 + random() % 12);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 3);
    Slots expected;
    for (Tokens beginning; beginning.size() < tokens.size();) {
      beginning.push_back(tokens[beginning.size()]);
      if (!known.contains(beginning)) break;
      expected.push_back(known[beginning]);
    }
    ASSERT_EQ(tree.Length(tokens), std::ssize(expected));
    if (random() % 3 == 0) {
      ASSERT_EQ(tree.Take(tokens), expected);
    } else if (random() % 2 == 0) {
      Slots slots;
      for (size_t at = 0; at < tokens.size(); ++at) slots.push_back(next_slot++);
      ASSERT_EQ(Insert(tree, tokens, slots),
                Slots(slots.begin() + std::ssize(expected), slots.end()));
      for (size_t at = expected.size(); at < tokens.size(); ++at)
        known.try_emplace(Tokens(tokens.begin(), tokens.begin() + static_cast<int64_t>(at) + 1),
                          slots[at]);
    } else {
      const Slots evicted = tree.Evict(static_cast<int64_t>(random() % 8), kIdle);
      const std::set<TokenSlot> gone(evicted.begin(), evicted.end());
      ASSERT_EQ(gone.size(), evicted.size());
      std::erase_if(known, [&](const auto& entry) { return gone.contains(entry.second); });
    }
    ASSERT_EQ(tree.num_tokens(), std::ssize(known));
  }
}

}  // namespace
}  // namespace lamina
