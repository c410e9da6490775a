#include "scheduler/slot_allocator.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/check.h"

namespace lamina {

namespace {

constexpr int64_t kNone = -1;  // no block, at the ends of lists

// Bits [first, first + count), count >= 1.
uint32_t Bits(int64_t first, int64_t count) { return ~uint32_t{0} >> (32 - count) << first; }

}  // namespace

SlotAllocator::SlotAllocator(int64_t capacity_tokens) : capacity_(capacity_tokens) {
  LAMINA_CHECK(capacity_tokens >= 0 && capacity_tokens <= (int64_t{1} << 32),
               "SlotAllocator: a capacity of {} tokens is out of range", capacity_tokens);
  partial_.fill(kNone);
  if (capacity_ > 0) AddRun(0, (capacity_ + kBlockSlots - 1) / kBlockSlots);
}

bool SlotAllocator::Allocate(int64_t num_slots, std::vector<TokenSlot>& slots) {
  if (num_slots > num_free()) return false;
  int64_t left = num_slots;
  if (left > 0 && !slots.empty()) left -= TakeBehind(slots.back(), left, slots);
  while (left > 0) left -= runs_.empty() ? TakeFromPartial(left, slots) : TakeFromRun(left, slots);
  return true;
}

void SlotAllocator::Occupy(std::span<const TokenSlot> slots) {
  // As in Release, a block at a time.
  for (size_t i = 0; i < slots.size();) {
    const int64_t block = slots[i] / kBlockSlots;
    LAMINA_CHECK(slots[i] < capacity_, "SlotAllocator::Occupy: slot {} of {}", slots[i], capacity_);
    Touch(block);
    uint32_t taken = 0;
    for (; i < slots.size() && slots[i] / kBlockSlots == block; ++i) {
      const TokenSlot slot = slots[i];
      LAMINA_CHECK(slot < capacity_, "SlotAllocator::Occupy: slot {} of {}", slot, capacity_);
      if (refs_[slot]++ == 0) taken |= uint32_t{1} << slot % kBlockSlots;
    }
    if (taken == 0) continue;
    num_used_ += std::popcount(taken);
    SetFree(block, blocks_[static_cast<size_t>(block)].free & ~taken);
  }
}

void SlotAllocator::AddRef(std::span<const TokenSlot> slots) {
  for (const TokenSlot slot : slots) {
    LAMINA_CHECK(num_refs(slot) > 0, "SlotAllocator::AddRef: slot {} is not in use", slot);
    ++refs_[slot];
  }
}

void SlotAllocator::Release(std::span<const TokenSlot> slots) {
  // Slots of one block that follow each other are freed together: runs and lists change once for
  // each block and not for each slot.
  for (size_t i = 0; i < slots.size();) {
    const int64_t block = slots[i] / kBlockSlots;
    uint32_t freed = 0;
    for (; i < slots.size() && slots[i] / kBlockSlots == block; ++i) {
      const TokenSlot slot = slots[i];
      LAMINA_CHECK(num_refs(slot) > 0, "SlotAllocator::Release: slot {} is not in use", slot);
      if (--refs_[slot] == 0) freed |= uint32_t{1} << slot % kBlockSlots;
    }
    if (freed == 0) continue;
    num_used_ -= std::popcount(freed);
    SetFree(block, blocks_[static_cast<size_t>(block)].free | freed);
  }
}

bool SlotAllocator::IsFree(int64_t slot) const {
  if (slot >= capacity_) return false;
  const auto block = static_cast<size_t>(slot / kBlockSlots);
  return block >= blocks_.size() || (blocks_[block].free >> slot % kBlockSlots & 1) != 0;
}

uint32_t SlotAllocator::AllSlots(int64_t block) const {
  return Bits(0, std::min<int64_t>(kBlockSlots, capacity_ - block * kBlockSlots));
}

void SlotAllocator::Touch(int64_t block) {
  for (int64_t i = static_cast<int64_t>(blocks_.size()); i <= block; ++i)
    blocks_.push_back({AllSlots(i), kNone, kNone});
  refs_.resize(blocks_.size() * kBlockSlots);
}

void SlotAllocator::Take(int64_t first, int64_t count, std::vector<TokenSlot>& slots) {
  const int64_t block = first / kBlockSlots;
  Touch(block);
  SetFree(block, blocks_[static_cast<size_t>(block)].free & ~Bits(first % kBlockSlots, count));
  for (int64_t slot = first; slot < first + count; ++slot) {
    refs_[static_cast<size_t>(slot)] = 1;
    slots.push_back(static_cast<TokenSlot>(slot));
  }
  num_used_ += count;
}

int64_t SlotAllocator::TakeBehind(int64_t slot, int64_t at_most, std::vector<TokenSlot>& slots) {
  int64_t taken = 0;
  while (taken < at_most && IsFree(slot + 1)) {
    const int64_t first = slot + 1;
    Touch(first / kBlockSlots);
    const uint32_t free =
        blocks_[static_cast<size_t>(first / kBlockSlots)].free >> first % kBlockSlots;
    const int64_t count = std::min<int64_t>(at_most - taken, std::countr_one(free));
    Take(first, count, slots);
    taken += count;
    slot += count;
  }
  return taken;
}

int64_t SlotAllocator::TakeFromRun(int64_t at_most, std::vector<TokenSlot>& slots) {
  // Blocks for a tenth of the sequence's length more, so that it can go on in the same run.
  const int64_t growth = (static_cast<int64_t>(slots.size()) + at_most) / 10 / kBlockSlots;
  const int64_t needed = (at_most + kBlockSlots - 1) / kBlockSlots;
  auto run = run_sizes_.lower_bound({needed + growth, 0});
  // No run has room for all: the lowest of the longest ones.
  if (run == run_sizes_.end()) run = run_sizes_.lower_bound({run_sizes_.rbegin()->first, 0});
  return TakeBehind(run->second * kBlockSlots - 1, std::min(at_most, run->first * kBlockSlots),
                    slots);
}

int64_t SlotAllocator::TakeFromPartial(int64_t at_most, std::vector<TokenSlot>& slots) {
  // The emptiest block holds the longest gaps, and this ends because some slot is free.
  size_t num_free = kBlockSlots - 1;
  while (partial_[num_free] == kNone) --num_free;
  const int64_t block = partial_[num_free];
  return TakeBehind(
      block * kBlockSlots + std::countr_zero(blocks_[static_cast<size_t>(block)].free) - 1, at_most,
      slots);
}

void SlotAllocator::SetFree(int64_t block, uint32_t free) {
  Block& b = blocks_[static_cast<size_t>(block)];
  const uint32_t all = AllSlots(block);
  if (b.free == all) {
    RemoveWhole(block);
  } else if (b.free != 0) {
    Unlink(block);
  }
  b.free = free;
  if (free == all) {
    AddWhole(block);
  } else if (free != 0) {
    Link(block);
  }
}

void SlotAllocator::AddRun(int64_t begin, int64_t end) {
  if (begin == end) return;
  runs_.emplace(begin, end);
  run_sizes_.emplace(end - begin, begin);
}

void SlotAllocator::RemoveRun(std::map<int64_t, int64_t>::iterator run) {
  run_sizes_.erase({run->second - run->first, run->first});
  runs_.erase(run);
}

void SlotAllocator::AddWhole(int64_t block) {
  int64_t begin = block, end = block + 1;
  auto next = runs_.upper_bound(block);
  if (next != runs_.begin() && std::prev(next)->second == block) {
    begin = std::prev(next)->first;
    RemoveRun(std::prev(next));
  }
  if (next != runs_.end() && next->first == end) {
    end = next->second;
    RemoveRun(next);
  }
  AddRun(begin, end);
}

void SlotAllocator::RemoveWhole(int64_t block) {
  const auto run = std::prev(runs_.upper_bound(block));
  const auto [begin, end] = *run;
  RemoveRun(run);
  AddRun(begin, block);
  AddRun(block + 1, end);
}

void SlotAllocator::Link(int64_t block) {
  Block& b = blocks_[static_cast<size_t>(block)];
  int64_t& first = partial_[static_cast<size_t>(std::popcount(b.free))];
  b.before = kNone;
  b.after = first;
  if (first != kNone) blocks_[static_cast<size_t>(first)].before = block;
  first = block;
}

void SlotAllocator::Unlink(int64_t block) {
  const Block& b = blocks_[static_cast<size_t>(block)];
  if (b.after != kNone) blocks_[static_cast<size_t>(b.after)].before = b.before;
  (b.before == kNone ? partial_[static_cast<size_t>(std::popcount(b.free))]
                     : blocks_[static_cast<size_t>(b.before)].after) = b.after;
}

}  // namespace lamina
