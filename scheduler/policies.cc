#include "scheduler/policies.h"

#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace lamina {

namespace {

class FifoQueue : public QueuePolicy {
 public:
  void Push(const Waiting& waiting) override {
    Remove(waiting.sequence);
    const Key key{!waiting.preempted, waiting.arrival};
    line_[key] = waiting;
    keys_[waiting.sequence] = key;
  }

  std::optional<Waiting> Top() const override {
    if (line_.empty()) return std::nullopt;
    return line_.begin()->second;
  }

  void Remove(SequenceId sequence) override {
    const auto it = keys_.find(sequence);
    if (it == keys_.end()) return;
    line_.erase(it->second);
    keys_.erase(it);
  }

  size_t size() const override { return line_.size(); }

 private:
  using Key = std::pair<bool, uint64_t>;  // {not preempted, arrival}: the smallest is served first
  std::map<Key, Waiting> line_;
  std::unordered_map<SequenceId, Key> keys_;
};

class LeastLoadedPlacement : public PlacementPolicy {
 public:
  std::optional<NodeId> Place(int64_t num_tokens, std::span<const NodeLoad> nodes) override {
    const NodeLoad* best = nullptr;
    for (const NodeLoad& node : nodes) {
      if (node.free_tokens >= num_tokens && (best == nullptr || Cost(node) < Cost(*best))) best = &node;
    }
    if (best == nullptr) return std::nullopt;
    return best->id;
  }

 private:
  static std::tuple<double, int, NodeId> Cost(const NodeLoad& node) {
    const double used_share = static_cast<double>(node.capacity_tokens - node.free_tokens) / static_cast<double>(node.capacity_tokens);
    return {used_share, node.num_sequences, node.id};
  }
};

}  // namespace

std::unique_ptr<QueuePolicy> MakeFifoQueue() { return std::make_unique<FifoQueue>(); }

std::unique_ptr<PlacementPolicy> MakeLeastLoadedPlacement() { return std::make_unique<LeastLoadedPlacement>(); }

}  // namespace lamina
