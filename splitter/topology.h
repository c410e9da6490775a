// Who has which part in a cluster, as a value: the manager, the planner's simulator and `lamina
// doctor` read it, so that KV heads, groups, stages and ranks are worked out in one place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/node_role.h"
#include "base/status.h"
#include "splitter/model_share.h"

namespace lamina {

enum class MemberState : uint8_t { kServing, kLost };

// One node's part in the cluster. Value type.
struct Member {
  // Says which node this is, for as long as the cluster lives: a node keeps its id in every view,
  // and no other node gets it. It is not an index into anything.
  NodeId id;
  NodeRole role = NodeRole::kCompute;
  // Compute nodes that share a model: the stage that the node belongs to, counted from 0. 0 for
  // others.
  int stage = 0;
  // Compute nodes that share a model: which of the ranks of its stage the node is. Memory nodes:
  // the rank that the node works for. 0 where there is one rank.
  int rank = 0;
  // Of each token it stores or computes KV heads [first_kv_head, first_kv_head + num_kv_heads) of
  // the model.
  int first_kv_head = 0;
  int num_kv_heads = 0;
  // The first of the memory nodes that together hold all KV heads of the same tokens. Compute nodes
  // are groups of their own.
  NodeId group;
  // A node that is lost has no part in steps.
  MemberState state = MemberState::kServing;
};

// What a view is made of: the nodes of a cluster, and how they share a model.
struct TopologyOptions {
  struct Node {
    NodeId id;  // not 0, which stands for no node
    NodeRole role = NodeRole::kCompute;
  };
  // [nodes] ascending by id, in which the compute nodes stand stage by stage.
  std::vector<Node> nodes;
  // Both 1 where each compute node holds the whole model. Else their product is the number of
  // compute nodes.
  int num_stages = 1, num_ranks = 1;
  // Memory nodes in a group, which are neighbours among the memory nodes.
  int kv_head_parallel = 1;
  // Of the model. A multiple of num_ranks.
  int num_kv_heads = 1;
};

// All nodes of a cluster at one time. Value type.
class View {
 public:
  // The first view of a cluster. A memory node works for one rank;
  // the memory nodes of a group that work for one rank are neighbours, and the first of them have
  // one KV head more where the rank's heads cannot be shared evenly. kInvalidArgument if the memory
  // nodes do not make up whole groups, or a group cannot be divided among the ranks, or the ids do
  // not ascend from above 0.
  static Result<View> Of(const TopologyOptions& options);

  // Ascending by id.
  std::span<const Member> members() const { return members_; }

  // Null if there is no such node. Valid until the view is changed.
  const Member* Find(NodeId id) const;

  // The part of the model that a compute node holds. REQUIRES: `member` is one of a compute node.
  ModelShare ShareOf(const Member& member) const {
    return {num_stages_, member.stage, num_ranks_, member.rank};
  }

  // The node is lost, and with it all nodes of its group: the tokens that they hold are of no use
  // without its KV heads. Does nothing if there is no such node.
  void Lose(NodeId id);

 private:
  View(int num_stages, int num_ranks) : num_stages_(num_stages), num_ranks_(num_ranks) {}

  int num_stages_ = 1, num_ranks_ = 1;
  std::vector<Member> members_;
};

}  // namespace lamina
