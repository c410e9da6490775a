// The token slots of one node: which sequences own them, and which still hold K and V of sequences
// that are over, for others that begin alike.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/ids.h"
#include "scheduler/prefix_tree.h"
#include "scheduler/slot_allocator.h"

namespace lamina {

struct Sequence;

// A slot is in use (a sequence owns it, or several that begin alike), idle (only the tree of
// prefixes does) or free. Idle ones count as free: they are evicted when others want room.
class KvPool {
 public:
  KvPool(NodeId id, int64_t capacity_tokens) : id_(id), allocator_(capacity_tokens) {}

  NodeId id() const { return id_; }
  int64_t capacity() const { return allocator_.capacity(); }
  int64_t num_free() const { return allocator_.num_free() + num_idle_; }
  int64_t num_idle() const { return num_idle_; }

  // As SlotAllocator's, with what is idle as room.
  [[nodiscard]] bool Allocate(int64_t num_slots, std::vector<TokenSlot>& slots);
  void Release(std::span<const TokenSlot> slots);

  // How many of the first `tokens` are there, and their slots with one owner more.
  int64_t CachedLength(std::span<const TokenId> tokens) const { return prefixes_.Length(tokens); }
  std::vector<TokenSlot> Share(std::span<const TokenId> tokens);

  // From now on slots[i] holds K and V of tokens[i] behind those before, for others too; of slots
  // that were withdrawn, and those behind them, nothing is kept. REQUIRES: the caller owns the
  // slots.
  void Keep(std::span<const TokenId> tokens, std::span<const TokenSlot> slots);

  // What these slots hold may be wrong: nobody else gets them, nor what is kept behind them, and
  // they are not kept again before they are free. REQUIRES: as Keep.
  void Withdraw(std::span<const TokenId> tokens, std::span<const TokenSlot> slots);

  // Nothing idle is worth anything any more. REQUIRES: nothing is in use.
  void DropPrefixes();

  std::map<uint64_t, Sequence*> running;  // by arrival: the newest is last
  double speed = 1;

 private:
  enum class Use : uint8_t { kOwners, kKept, kWithdrawn };  // kKept: the tree is one of the owners

  void Evict(int64_t num_slots);
  void ReleaseForgotten(std::span<const TokenSlot> slots);  // by the tree
  Use& use(TokenSlot slot) { return uses_[slot]; }

  NodeId id_;
  SlotAllocator allocator_;
  PrefixTree prefixes_;
  std::vector<Use> uses_;  // of each slot up to the highest one that was ever in use
  int64_t num_idle_ = 0;
};

}  // namespace lamina
