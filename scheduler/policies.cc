#include "scheduler/policies.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace lamina {

namespace {

// Serves by rank, then preempted ones first, then by age.
class RankedQueue : public QueuePolicy {
 public:
  void Push(const Waiting& waiting) override {
    Remove(waiting.sequence);
    const Key key{Rank(waiting), !waiting.preempted, waiting.arrival};
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
  // {rank, not preempted, arrival}: the smallest is served first.
  using Key = std::tuple<int64_t, bool, uint64_t>;
  std::map<Key, Waiting> line_;
  std::unordered_map<SequenceId, Key> keys_;
};

class FifoQueue final : public RankedQueue {};

class PriorityQueue final : public RankedQueue {
 public:
  bool ranks() const override { return true; }
  int64_t Rank(const Waiting& waiting) const override { return waiting.priority; }
};

class DeadlineQueue final : public RankedQueue {
 public:
  bool ranks() const override { return true; }
  int64_t Rank(const Waiting& waiting) const override {
    return (waiting.hopeless ? TimePoint::max() : waiting.due).time_since_epoch().count();
  }
};

class LeastLoadedPlacement : public PlacementPolicy {
 public:
  bool spreads() const override { return false; }

  std::vector<KvShare> Place(int64_t num_tokens, int64_t num_growth,
                             std::span<const NodeLoad> nodes) override {
    const NodeLoad* best = nullptr;
    for (const NodeLoad& node : nodes) {
      if (node.free_tokens >= num_tokens + num_growth &&
          (best == nullptr || Cost(node) < Cost(*best)))
        best = &node;
    }
    if (best == nullptr) return {};
    return {{best->id, num_tokens}};
  }

  // Where it is.
  NodeId Grow(std::span<const KvShare> held, std::span<const NodeLoad>) override {
    return held.back().node;
  }

 private:
  static std::tuple<double, int, NodeId> Cost(const NodeLoad& node) {
    const double used_share =
        static_cast<double>(node.used_tokens()) / static_cast<double>(node.capacity_tokens);
    return {used_share / node.speed, node.num_sequences, node.id};
  }
};

class SpreadPlacement : public PlacementPolicy {
 public:
  explicit SpreadPlacement(int64_t spread_tokens) : spread_tokens_(spread_tokens) {}

  bool spreads() const override { return true; }

  std::vector<KvShare> Place(int64_t num_tokens, int64_t num_growth,
                             std::span<const NodeLoad> nodes) override {
    int64_t total_free = 0;
    for (const NodeLoad& node : nodes) total_free += node.free_tokens;
    if (total_free < num_tokens + num_growth) return {};
    // The nodes with the shortest time first, and of these first those with room for an even share.
    std::vector<NodeLoad> order(nodes.begin(), nodes.end());
    std::sort(order.begin(), order.end(),
              [](const NodeLoad& a, const NodeLoad& b) { return Time(a) < Time(b); });
    size_t num_shares = std::min<size_t>(NumNodes(num_tokens), order.size());
    const auto has_room = [&](const NodeLoad& node) {
      return node.free_tokens * static_cast<int64_t>(num_shares) >= num_tokens;
    };
    std::stable_partition(order.begin(), order.end(), has_room);
    const auto room = [&] {
      int64_t sum = 0;
      for (size_t i = 0; i < num_shares; ++i) sum += order[i].free_tokens;
      return sum;
    };
    // Ends, because all nodes together have room.
    while (room() < num_tokens) ++num_shares;
    return Level({order.begin(), order.begin() + static_cast<std::ptrdiff_t>(num_shares)},
                 num_tokens);
  }

  NodeId Grow(std::span<const KvShare> held, std::span<const NodeLoad> nodes) override {
    int64_t num_tokens = 1;  // with the one that is to be placed
    for (const KvShare& share : held) num_tokens += share.num_tokens;
    const auto is_held = [&](const NodeLoad& node) {
      return std::any_of(held.begin(), held.end(),
                         [&](const KvShare& share) { return share.node == node.id; });
    };
    // `nodes` has only those with a free slot: if none of them is held, the held ones are full.
    const bool may_leave =
        NumNodes(num_tokens) > held.size() || std::none_of(nodes.begin(), nodes.end(), is_held);
    const NodeLoad* best = nullptr;
    for (const NodeLoad& node : nodes) {
      if ((may_leave || is_held(node)) && (best == nullptr || Time(node) < Time(*best)))
        best = &node;
    }
    return best->id;
  }

 private:
  size_t NumNodes(int64_t num_tokens) const {
    return static_cast<size_t>((num_tokens + spread_tokens_ - 1) / spread_tokens_);
  }

  // How long attention over all tokens of the node takes, in a unit that is the same for all nodes.
  static std::tuple<double, NodeId> Time(const NodeLoad& node) {
    return {static_cast<double>(node.used_tokens()) / node.speed, node.id};
  }

  // Divides the tokens among the nodes so that their times end as equal as possible, like water
  // that is poured into connected basins. The common level is found by bisection. REQUIRES: all
  // nodes together have room.
  static std::vector<KvShare> Level(std::vector<NodeLoad> nodes, int64_t num_tokens) {
    // Tokens that bring every node up to this time.
    const auto poured = [&](double level) {
      int64_t sum = 0;
      for (const NodeLoad& node : nodes) sum += Fill(node, level);
      return sum;
    };
    double low = 0, high = 0;
    for (const NodeLoad& node : nodes)
      high = std::max(high, static_cast<double>(node.capacity_tokens) / node.speed);
    // Each round gains a bit, and a double has 53.
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      (poured(middle) < num_tokens ? low : high) = middle;
    }
    std::vector<KvShare> shares;
    for (const NodeLoad& node : nodes) shares.push_back({node.id, Fill(node, low)});
    // What rounding down has left over goes to the nodes one by one.
    int64_t left = num_tokens - poured(low);
    for (size_t i = 0; left > 0; i = (i + 1) % nodes.size()) {
      const int64_t more = std::min<int64_t>(nodes[i].free_tokens - shares[i].num_tokens, 1);
      shares[i].num_tokens += more;
      left -= more;
    }
    std::erase_if(shares, [](const KvShare& share) { return share.num_tokens == 0; });
    return shares;
  }

  // Tokens that bring the node up to the time `level`, as far as it has room.
  static int64_t Fill(const NodeLoad& node, double level) {
    const auto tokens = static_cast<int64_t>(level * node.speed) - node.used_tokens();
    return std::clamp<int64_t>(tokens, 0, node.free_tokens);
  }

  const int64_t spread_tokens_;
};

}  // namespace

std::unique_ptr<QueuePolicy> MakeFifoQueue() { return std::make_unique<FifoQueue>(); }
std::unique_ptr<QueuePolicy> MakePriorityQueue() { return std::make_unique<PriorityQueue>(); }
std::unique_ptr<QueuePolicy> MakeDeadlineQueue() { return std::make_unique<DeadlineQueue>(); }

std::unique_ptr<PlacementPolicy> MakeLeastLoadedPlacement() {
  return std::make_unique<LeastLoadedPlacement>();
}

std::unique_ptr<PlacementPolicy> MakeSpreadPlacement(int64_t spread_tokens) {
  return std::make_unique<SpreadPlacement>(spread_tokens);
}

}  // namespace lamina
