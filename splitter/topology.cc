#include "splitter/topology.h"

#include <algorithm>
#include <string>

namespace lamina {
namespace {

Status CheckIds(const TopologyOptions& options) {
  NodeId before;  // 0
  for (const TopologyOptions::Node& node : options.nodes) {
    if (node.id <= before) {
      return InvalidArgument("node id " + std::to_string(node.id.value) + " follows on " +
                             std::to_string(before.value) +
                             ": ids have to ascend, and 0 stands for no node");
    }
    before = node.id;
  }
  return OkStatus();
}

Status CheckGroups(const TopologyOptions& options) {
  const auto num_memory =
      std::ranges::count(options.nodes, NodeRole::kMemory, &TopologyOptions::Node::role);
  if (num_memory % options.kv_head_parallel == 0 &&
      (num_memory == 0 || options.kv_head_parallel % options.num_ranks == 0))
    return OkStatus();
  return InvalidArgument("kv_head_parallel " + std::to_string(options.kv_head_parallel) + ": " +
                         std::to_string(num_memory) + " memory nodes cannot be grouped like that");
}

// The index-th compute node.
void GiveShare(const TopologyOptions& options, int index, Member& node) {
  if (options.num_stages * options.num_ranks > 1) {
    node.stage = index / options.num_ranks;
    node.rank = index % options.num_ranks;
  }
  node.num_kv_heads = options.num_kv_heads / options.num_ranks;
  node.first_kv_head = node.rank * node.num_kv_heads;
}

// The index-th memory node.
void GiveHeads(const TopologyOptions& options, int index, Member& node) {
  const int heads_of_rank = options.num_kv_heads / options.num_ranks;
  const int size = options.kv_head_parallel / options.num_ranks, place = index % size;
  const int even = heads_of_rank / size, more = heads_of_rank % size;
  node.rank = index / size % options.num_ranks;
  node.first_kv_head = node.rank * heads_of_rank + place * even + std::min(place, more);
  node.num_kv_heads = even + (place < more ? 1 : 0);
}

}  // namespace

Result<View> View::Of(const TopologyOptions& options) {
  LAMINA_RETURN_IF_ERROR(CheckIds(options));
  LAMINA_RETURN_IF_ERROR(CheckGroups(options));
  View view(options.num_stages, options.num_ranks);
  int num_compute = 0, num_memory = 0;
  NodeId group;
  for (const auto& [id, role] : options.nodes) {
    Member& node = view.members_.emplace_back();
    node.id = node.group = id;
    node.role = role;
    if (role == NodeRole::kCompute) {
      GiveShare(options, num_compute++, node);
      continue;
    }
    if (num_memory % options.kv_head_parallel == 0) group = node.id;
    node.group = group;
    GiveHeads(options, num_memory++, node);
  }
  return view;
}

const Member* View::Find(NodeId id) const {
  const auto found = std::ranges::lower_bound(members_, id, {}, &Member::id);
  return found != members_.end() && found->id == id ? &*found : nullptr;
}

void View::Lose(NodeId id) {
  const Member* const lost = Find(id);
  if (lost == nullptr) return;
  const NodeId group = lost->group;
  for (Member& node : members_) {
    if (node.group == group) node.state = MemberState::kLost;
  }
}

}  // namespace lamina
