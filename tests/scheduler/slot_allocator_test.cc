#include "scheduler/slot_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace lamina {
namespace {

using ::testing::ElementsAre;

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

TEST(SlotAllocator, OccupiedSlotsAreNobodyElses) {
  SlotAllocator allocator(40);
  allocator.Occupy(std::vector<TokenSlot>{2, 3, 36});
  allocator.Occupy(std::vector<TokenSlot>{3, 20});
  EXPECT_EQ(allocator.num_used(), 4);
  EXPECT_EQ(allocator.num_refs(3), 2);
  std::vector<TokenSlot> rest = Take(allocator, 36);
  EXPECT_EQ(allocator.num_free(), 0);
  for (const TokenSlot slot : {2, 3, 20, 36})
    EXPECT_EQ(std::ranges::count(rest, slot), 0) << "slot " << slot;
  allocator.Release(std::vector<TokenSlot>{2, 3, 36});
  EXPECT_EQ(allocator.num_free(), 2) << "slot 3 has another owner";
  allocator.Release(rest);
  allocator.Release(std::vector<TokenSlot>{3, 20});
  EXPECT_EQ(allocator.num_used(), 0);
  EXPECT_EQ(Take(allocator, 40).size(), 40u);
}

TEST(SlotAllocatorDeathTest, OccupiesNoSlotThatThereIsNot) {
  SlotAllocator allocator(10);
  EXPECT_DEATH(allocator.Occupy(std::vector<TokenSlot>{10}), "Occupy");
}

void Grow(SlotAllocator& allocator, int num_slots, std::vector<TokenSlot>& slots) {
  for (int i = 0; i < num_slots; ++i) ASSERT_TRUE(allocator.Allocate(1, slots));
}

int NumRuns(const std::vector<TokenSlot>& slots) {
  int runs = 0;
  for (size_t i = 0; i < slots.size(); ++i) runs += i == 0 || slots[i] != slots[i - 1] + 1;
  return runs;
}

// A token each in turn, as decoding does.
TEST(SlotAllocator, SequencesThatGrowSideBySideStayRuns) {
  SlotAllocator allocator(4096);
  std::vector<std::vector<TokenSlot>> sequences(8);
  for (auto& sequence : sequences) Grow(allocator, 1, sequence);
  for (int i = 1; i < 16; ++i) {
    for (auto& sequence : sequences) Grow(allocator, 1, sequence);
  }
  for (const auto& sequence : sequences) EXPECT_EQ(NumRuns(sequence), 1);
  for (int i = 16; i < 160; ++i) {
    for (auto& sequence : sequences) Grow(allocator, 1, sequence);
  }
  for (const auto& sequence : sequences) EXPECT_LE(NumRuns(sequence), 10);
}

TEST(SlotAllocator, TheShortestRunWithRoomForGrowthIsTaken) {
  SlotAllocator allocator(1024);
  const std::vector<TokenSlot> a = Take(allocator, 176), b = Take(allocator, 16),
                               c = Take(allocator, 160), d = Take(allocator, 16);
  allocator.Release(a);  // 11 blocks
  allocator.Release(c);  // 10 blocks, behind b
  std::vector<TokenSlot> fits = Take(allocator, 160);
  EXPECT_EQ(fits.front(), a.front());
  Grow(allocator, 16, fits);
  EXPECT_EQ(NumRuns(fits), 1);
  EXPECT_EQ(Take(allocator, 100).front(), c.front());
}

TEST(SlotAllocator, ReleasedSlotsJoinToOneRun) {
  constexpr int64_t kCapacity = 1000;  // no multiple of a block
  SlotAllocator allocator(kCapacity);
  std::vector<std::vector<TokenSlot>> sequences;
  std::mt19937 random(5);
  while (allocator.num_free() > 0)
    sequences.push_back(
        Take(allocator, std::min<int64_t>(allocator.num_free(), 1 + random() % 40)));
  std::shuffle(sequences.begin(), sequences.end(), random);
  for (const auto& sequence : sequences) allocator.Release(sequence);
  EXPECT_EQ(NumRuns(Take(allocator, kCapacity)), 1);
}

TEST(SlotAllocator, TheLastSlotsAreFoundWhereverTheyAre) {
  SlotAllocator allocator(100);
  std::vector<TokenSlot> slots = Take(allocator, 100), freed = {7, 8, 50, 99};
  allocator.Release(freed);
  std::vector<TokenSlot> found = Take(allocator, 4);
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, freed);
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

TEST(SlotAllocator, TakesEveryCapacityThatSlotsCanNumber) {
  constexpr int64_t kAll = int64_t{1} << 32;
  SlotAllocator allocator(kAll);
  EXPECT_THAT(Take(allocator, 2), ElementsAre(0, 1));
  EXPECT_EQ(allocator.num_free(), kAll - 2);
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
void ExpectNoSlotTwice(int64_t capacity, uint32_t seed) {
  std::mt19937 random(seed);
  SlotAllocator allocator(capacity);
  std::map<TokenSlot, int> owners;
  std::vector<std::vector<TokenSlot>> lists;
  for (int step = 0; step < 20000; ++step) {
    const uint64_t action = random() % 6;
    if (action == 5 && !lists.empty()) {  // grow
      std::vector<TokenSlot>& slots = lists[random() % lists.size()];
      const bool has_room = static_cast<int64_t>(owners.size()) < capacity;
      ASSERT_EQ(allocator.Allocate(1, slots), has_room);
      if (has_room) {
        ASSERT_LT(slots.back(), capacity);
        ASSERT_TRUE(owners.emplace(slots.back(), 1).second) << slots.back();
      }
    } else if (action < 2) {
      const int64_t num_slots = static_cast<int64_t>(random() % 20);
      std::vector<TokenSlot> slots;
      ASSERT_EQ(allocator.Allocate(num_slots, slots),
                num_slots <= capacity - static_cast<int64_t>(owners.size()));
      for (const TokenSlot slot : slots) {
        ASSERT_LT(slot, capacity);
        ASSERT_TRUE(owners.emplace(slot, 1).second) << slot;
      }
      if (!slots.empty()) lists.push_back(slots);
    } else if (!lists.empty()) {
      const size_t index = random() % lists.size();
      if (action == 2) {
        const std::vector<TokenSlot> fork(
            lists[index].begin(),
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

TEST(SlotAllocator, RandomCallsNeverHandOutASlotTwice) {
  for (const int64_t capacity : {1, 15, 16, 97, 512})
    ExpectNoSlotTwice(capacity, static_cast<uint32_t>(capacity));
}

}  // namespace
}  // namespace lamina
