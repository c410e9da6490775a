// The memory nodes that compute nodes wait for no longer, because they are late. Several compute
// nodes may suspend the same one, each for itself, and their news come over several connections and
// may overtake each other.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/ids.h"

namespace lamina {

// Thread: owner.
class Suspensions {
 public:
  // The compute node `by` has suspended the node; `number` is PeerState::suspension. Returns
  // whether nobody had until now. Ignored if that suspension is over.
  bool Begin(NodeId node, NodeId by, uint64_t number, const std::string& why);
  // The suspension is over. Returns whether somebody had suspended the node until now, and nobody
  // has any more.
  bool End(NodeId node, NodeId by, uint64_t number);

  // The node is lost.
  void Forget(NodeId node);
  // All compute nodes count anew.
  void Clear() { latest_.clear(); }

  // Those that somebody has suspended.
  std::set<NodeId> nodes() const;
  // Why the node was suspended, borrowed until the next call; null if it is not.
  const std::string* WhyOf(NodeId node) const;

 private:
  struct Latest {  // suspension of a node by a compute node
    uint64_t number = 0;
    bool over = false;
    std::string why;
  };
  std::map<std::pair<NodeId, NodeId>, Latest> latest_;  // by node and compute node
};

}  // namespace lamina
