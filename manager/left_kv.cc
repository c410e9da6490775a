#include "manager/left_kv.h"

#include <algorithm>
#include <set>
#include <utility>

namespace lamina {
namespace {

// A node that names a slot twice is not to be believed.
bool HasEachOnce(std::vector<TokenSlot> slots) {
  std::ranges::sort(slots);
  return std::ranges::adjacent_find(slots) == slots.end();
}

// The sequences that all of a pool's nodes have, as far as they agree.
using OfPool = std::map<KvHandle, std::vector<TokenSlot>>;

OfPool Of(const LeftKv& node) {
  OfPool sequences;
  if (node.manager == 0) return sequences;
  for (const LeftSequence& left : node.sequences) {
    if (HasEachOnce(left.slots)) sequences[{left.sequence, node.manager}] = left.slots;
  }
  return sequences;
}

void KeepCommon(OfPool& pool, const OfPool& node) {
  for (auto& [handle, slots] : pool) {
    const auto same = node.find(handle);
    if (same == node.end()) {
      slots.clear();
    } else {
      slots.erase(std::ranges::mismatch(slots, same->second).in1, slots.end());
    }
  }
  std::erase_if(pool, [](const auto& sequence) { return sequence.second.empty(); });
}

}  // namespace

std::map<KvHandle, LeftTokens> FindLeft(const std::map<NodeId, LeftKv>& by_node,
                                        const std::function<NodeId(NodeId)>& pool_of) {
  std::map<NodeId, OfPool> by_pool;
  for (const auto& [node, left] : by_node) {
    OfPool sequences = Of(left);
    const auto pool = by_pool.find(pool_of(node));
    if (pool == by_pool.end())
      by_pool.emplace(pool_of(node), std::move(sequences));
    else
      KeepCommon(pool->second, sequences);
  }
  // One that is on two pools has started anew on one of them, or is spread over both.
  std::map<KvHandle, LeftTokens> found;
  std::set<KvHandle> doubtful;
  for (auto& [pool, sequences] : by_pool) {
    for (auto& [handle, slots] : sequences) {
      if (!found.try_emplace(handle, LeftTokens{pool, std::move(slots)}).second)
        doubtful.insert(handle);
    }
  }
  for (const KvHandle& handle : doubtful) found.erase(handle);
  return found;
}

}  // namespace lamina
