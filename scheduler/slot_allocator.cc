#include "scheduler/slot_allocator.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace lamina {

namespace {

[[noreturn]] void DieOfFreeSlot(const char* call, TokenSlot slot) {
  std::fprintf(stderr, "lamina: SlotAllocator::%s: slot %u is not in use\n", call, slot);
  std::abort();
}

}  // namespace

SlotAllocator::SlotAllocator(int64_t capacity_tokens) : capacity_(capacity_tokens) {
  if (capacity_tokens < 0 || capacity_tokens > (int64_t{1} << 32)) {
    std::fprintf(stderr, "lamina: SlotAllocator: capacity of %lld tokens is out of range\n", static_cast<long long>(capacity_tokens));
    std::abort();
  }
}

bool SlotAllocator::Allocate(int64_t num_slots, std::vector<TokenSlot>& slots) {
  if (num_slots > num_free()) return false;
  const int64_t num_reused = std::min(num_slots, static_cast<int64_t>(free_.size()));
  for (int64_t i = 0; i < num_reused; ++i) {
    const TokenSlot slot = free_.back();
    free_.pop_back();
    refs_[slot] = 1;
    slots.push_back(slot);
  }
  for (int64_t i = num_reused; i < num_slots; ++i) {
    slots.push_back(static_cast<TokenSlot>(refs_.size()));
    refs_.push_back(1);
  }
  num_used_ += num_slots;
  return true;
}

void SlotAllocator::AddRef(std::span<const TokenSlot> slots) {
  for (const TokenSlot slot : slots) {
    if (num_refs(slot) == 0) DieOfFreeSlot("AddRef", slot);
    ++refs_[slot];
  }
}

void SlotAllocator::Release(std::span<const TokenSlot> slots) {
  // From the back, so that the next Allocate gets them in their order.
  for (size_t i = slots.size(); i-- > 0;) {
    const TokenSlot slot = slots[i];
    if (num_refs(slot) == 0) DieOfFreeSlot("Release", slot);
    if (--refs_[slot] > 0) continue;
    free_.push_back(slot);
    --num_used_;
  }
}

}  // namespace lamina
