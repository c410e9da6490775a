#include "scheduler/slot_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace lamina {
namespace {

using testing::ElementsAre;

std::vector<TokenSlot> Take(SlotAllocator& allocator, int64_t num_slots) {
  std::vector<TokenSlot> slots;
  EXPECT_TRUE(allocator.Allocate(num_slots, slots));
  return slots;
}

TEST(SlotAllocator, FreshSlotsAreOneAscendingRun) {
  SlotAllocator allocator(10);
  EXPECT_THAT(Take(allocator, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Take(allocator, 2), ElementsAre(4, 5));
  EXPECT_EQ(allocator.num_used(), 6);
  EXPECT_EQ(allocator.num_free(), 4);
  EXPECT_EQ(allocator.capacity(), 10);
}

TEST(SlotAllocator, TheListFreedLastComesFirstAndInItsOrder) {
  SlotAllocator allocator(10);
  const std::vector<TokenSlot> a = Take(allocator, 2), b = Take(allocator, 3);
  allocator.Release(a);
  allocator.Release(b);
  EXPECT_THAT(Take(allocator, 3), ElementsAre(2, 3, 4));
  EXPECT_THAT(Take(allocator, 4), ElementsAre(0, 1, 5, 6));
}

TEST(SlotAllocator, AllocatesAllOrNothing) {
  SlotAllocator allocator(4);
  std::vector<TokenSlot> slots = Take(allocator, 3);
  EXPECT_FALSE(allocator.Allocate(2, slots));
  EXPECT_EQ(slots.size(), 3u);
  EXPECT_EQ(allocator.num_free(), 1);
  EXPECT_TRUE(allocator.Allocate(1, slots));
  EXPECT_THAT(slots, ElementsAre(0, 1, 2, 3));
  EXPECT_FALSE(allocator.Allocate(1, slots));
  EXPECT_TRUE(allocator.Allocate(0, slots));
}

TEST(SlotAllocator, ASharedSlotIsFreeAfterItsLastOwner) {
  SlotAllocator allocator(3);
  const std::vector<TokenSlot> slots = Take(allocator, 2);
  allocator.AddRef(slots);
  EXPECT_EQ(allocator.num_refs(slots[0]), 2);
  allocator.Release(slots);
  EXPECT_EQ(allocator.num_used(), 2);
  EXPECT_THAT(Take(allocator, 1), ElementsAre(2));
  allocator.Release(std::span(slots).subspan(1));
  EXPECT_EQ(allocator.num_refs(slots[1]), 0);
  EXPECT_THAT(Take(allocator, 1), ElementsAre(1));
}

TEST(SlotAllocator, EmptySlabHasNoSlots) {
  SlotAllocator allocator(0);
  std::vector<TokenSlot> slots;
  EXPECT_FALSE(allocator.Allocate(1, slots));
}

TEST(SlotAllocatorDeathTest, FreeSlotsHaveNoOwner) {
  SlotAllocator allocator(4);
  const std::vector<TokenSlot> slots = Take(allocator, 1), never = {3};
  allocator.Release(slots);
  EXPECT_DEATH(allocator.Release(slots), "Release: slot 0 is not in use");
  EXPECT_DEATH(allocator.AddRef(slots), "AddRef: slot 0 is not in use");
  EXPECT_DEATH(allocator.Release(never), "Release: slot 3 is not in use");
  EXPECT_DEATH(SlotAllocator(-1), "out of range");
}

// Against a plain map of owners.
TEST(SlotAllocator, RandomCallsNeverHandOutASlotTwice) {
  std::mt19937 random(7);
  constexpr int64_t kCapacity = 97;
  SlotAllocator allocator(kCapacity);
  std::map<TokenSlot, int> owners;
  std::vector<std::vector<TokenSlot>> lists;
  for (int step = 0; step < 20000; ++step) {
    const uint64_t action = random() % 5;
    if (action < 2) {
      const int64_t num_slots = static_cast<int64_t>(random() % 20);
      std::vector<TokenSlot> slots;
      ASSERT_EQ(allocator.Allocate(num_slots, slots), num_slots <= kCapacity - static_cast<int64_t>(owners.size()));
      for (const TokenSlot slot : slots) {
        ASSERT_LT(slot, kCapacity);
        ASSERT_TRUE(owners.emplace(slot, 1).second) << slot;
      }
      if (!slots.empty()) lists.push_back(slots);
    } else if (!lists.empty()) {
      const size_t index = random() % lists.size();
      if (action == 2) {
        const std::vector<TokenSlot> fork(lists[index].begin(),
                                          lists[index].begin() + 1 + static_cast<int64_t>(random() % lists[index].size()));
        allocator.AddRef(fork);
        for (const TokenSlot slot : fork) ++owners[slot];
        lists.push_back(fork);
      } else {
        allocator.Release(lists[index]);
        for (const TokenSlot slot : lists[index]) {
          if (--owners[slot] == 0) owners.erase(slot);
        }
        lists.erase(lists.begin() + static_cast<int64_t>(index));
      }
    }
    ASSERT_EQ(allocator.num_used(), static_cast<int64_t>(owners.size()));
  }
}

}  // namespace
}  // namespace lamina
