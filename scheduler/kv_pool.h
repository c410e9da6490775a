// The token slots of one node: which of them sequences own, and which hold K and V that are kept
// for later sequences with the same prefix. Combines SlotAllocator, which hands out slots and
// counts references, with PrefixTree, which finds the slots of a given text.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/ids.h"
#include "scheduler/prefix_tree.h"
#include "scheduler/slot_allocator.h"

namespace lamina {

struct KvNode;
struct Sequence;

// A slot is in use (one or several sequences own it), idle (only the tree of prefixes owns it) or
// free. Idle slots count as free, since they are evicted when a sequence needs room.
//
// Thread: the scheduler's owner.
class KvPool {
 public:
  explicit KvPool(const KvNode& node);

  NodeId id() const { return id_; }
  int64_t capacity() const { return capacity_; }
  int64_t least() const { return least_; }  // the capacity at first
  int64_t most() const { return allocator_.capacity(); }
  int64_t num_free() const { return allocator_.num_free() + num_idle_; }
  int64_t num_idle() const { return num_idle_; }

  // Appends `num_slots` slots to `slots`, which are the sequence's slots so far, and evicts idle
  // slots if too few are free. All or nothing: returns false and changes nothing if num_free() is
  // too small.
  [[nodiscard]] bool Allocate(int64_t num_slots, std::vector<TokenSlot>& slots);
  // Takes these slots for a sequence, which holds K and V in them already, with whoever owns them
  // too. REQUIRES: they are below capacity() and the tree keeps none of them.
  void Occupy(std::span<const TokenSlot> slots);
  // Gives up one sequence's ownership of the slots. Those that the tree keeps become idle when
  // their last sequence leaves. REQUIRES: every slot is in use (aborts otherwise).
  void Release(std::span<const TokenSlot> slots);

  // How many of the first `tokens` are kept here.
  int64_t CachedLength(std::span<const TokenId> tokens) const { return prefixes_.Length(tokens); }
  // Returns the slots of the first CachedLength(tokens) tokens, which the caller owns too from now
  // on.
  std::vector<TokenSlot> Share(std::span<const TokenId> tokens);

  // Offers to other sequences that slots[i] holds K and V of tokens[i] behind the tokens before it.
  // Slots that were withdrawn, and those behind them, are not offered. REQUIRES: the caller owns
  // the slots; as many slots as tokens.
  void Keep(std::span<const TokenId> tokens, std::span<const TokenSlot> slots);

  // The content of these slots may be wrong: neither they nor what is kept behind them is offered
  // any more, and they cannot be kept again until they have been free. REQUIRES: the caller owns
  // the slots; as many slots as tokens.
  void Withdraw(std::span<const TokenId> tokens, std::span<const TokenSlot> slots);

  // Slots are those below `tokens` from now on. Evicts all idle slots if that are fewer. REQUIRES:
  // as Scheduler::SetCapacity; the tree keeps no other slot above; their sequences are about to
  // leave.
  void SetCapacity(int64_t tokens);
  // Whether sequences still own slots above.
  bool is_over_capacity() const;

  // Evicts everything that is kept. REQUIRES: no sequence owns a slot.
  void DropPrefixes();

  // Kept by the scheduler: sequences with slots here, by arrival, the newest last; the node's speed
  // of attention relative to the other nodes; and whether it is suspended.
  std::map<uint64_t, Sequence*> running;
  double speed = 1;
  bool suspended = false;

 private:
  // kOwners: only sequences own it, if anybody does. kKept: the tree is one of the owners.
  // kWithdrawn: sequences own it, and the tree must not take it.
  enum class Use : uint8_t { kOwners, kKept, kWithdrawn };

  // Frees at least `num_slots` idle slots, or all.
  void Evict(int64_t num_slots);
  // Drops the tree's reference to slots that the tree has just forgotten.
  void ReleaseForgotten(std::span<const TokenSlot> slots);
  Use& use(TokenSlot slot) { return uses_[slot]; }

  NodeId id_;
  int64_t least_, capacity_;
  // Has room for the most tokens. The slots from capacity_ on count as owned once more than they
  // are, so that nobody gets them.
  SlotAllocator allocator_;
  PrefixTree prefixes_;
  std::vector<Use> uses_;  // by slot, up to at least the highest that was ever in use
  int64_t num_idle_ = 0;
};

}  // namespace lamina
