#include "splitter/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace lamina {
namespace {

using ::testing::HasSubstr;

constexpr NodeRole kC = NodeRole::kCompute, kM = NodeRole::kMemory;

// Nodes of these roles, in this order, with ids that have gaps.
std::vector<TopologyOptions::Node> Nodes(const std::vector<NodeRole>& roles) {
  std::vector<TopologyOptions::Node> nodes;
  uint32_t id = 2;
  for (const NodeRole role : roles) {
    nodes.push_back({NodeId{id}, role});
    id += 1 + id % 3;
  }
  return nodes;
}

// Compute nodes, then groups of memory nodes.
TopologyOptions Shape(int num_stages, int num_ranks, int kv_head_parallel, int num_groups,
                      int num_kv_heads) {
  TopologyOptions options;
  std::vector<NodeRole> roles(static_cast<size_t>(num_stages * num_ranks), kC);
  roles.insert(roles.end(), static_cast<size_t>(kv_head_parallel * num_groups), kM);
  options.nodes = Nodes(roles);
  options.num_stages = num_stages;
  options.num_ranks = num_ranks;
  options.kv_head_parallel = kv_head_parallel;
  options.num_kv_heads = num_kv_heads;
  return options;
}

// All shapes of up to 3 stages, 3 ranks, 6 memory nodes in a group and 3 groups, with up to 12 KV
// heads, that ResolveConfig would accept.
std::vector<TopologyOptions> AllShapes() {
  std::vector<TopologyOptions> all;
  for (int stages = 1; stages <= 3; ++stages) {
    for (int ranks = 1; ranks <= 3; ++ranks) {
      for (int parallel = ranks; parallel <= 6; parallel += ranks) {
        for (int groups = 1; groups <= 3; ++groups) {
          for (int heads = parallel; heads <= 12; ++heads) {
            if (heads % ranks == 0) all.push_back(Shape(stages, ranks, parallel, groups, heads));
          }
        }
      }
    }
  }
  return all;
}

std::string Describe(const TopologyOptions& options) {
  return std::to_string(options.num_stages) + " stages, " + std::to_string(options.num_ranks) +
         " ranks, kv_head_parallel " + std::to_string(options.kv_head_parallel) + ", " +
         std::to_string(options.nodes.size()) + " nodes, " + std::to_string(options.num_kv_heads) +
         " KV heads";
}

TEST(View, EveryHeadIsOnExactlyOneMemoryNodeOfEachGroup) {
  for (const TopologyOptions& options : AllShapes()) {
    const View view = *View::Of(options);
    std::map<NodeId, std::vector<int>> holders;  // by group: [heads] how many hold it
    std::map<NodeId, int> size;
    for (const Member& node : view.members()) {
      if (node.role != kM) continue;
      std::vector<int>& of_head = holders[node.group];
      of_head.resize(static_cast<size_t>(options.num_kv_heads));
      for (int i = 0; i < node.num_kv_heads; ++i)
        ++of_head.at(static_cast<size_t>(node.first_kv_head + i));
      ++size[node.group];
    }
    for (const auto& [group, of_head] : holders) {
      EXPECT_THAT(of_head, ::testing::Each(1)) << Describe(options);
      EXPECT_EQ(size[group], options.kv_head_parallel) << Describe(options);
      EXPECT_EQ(view.Find(group)->group, group) << Describe(options);
    }
  }
}

// No node has more than one head more than another that works for the same rank.
TEST(View, HeadsAreSharedAsEvenlyAsCanBe) {
  for (const TopologyOptions& options : AllShapes()) {
    const View view = *View::Of(options);
    int fewest = options.num_kv_heads, most = 0;
    for (const Member& node : view.members()) {
      if (node.role != kM) continue;
      fewest = std::min(fewest, node.num_kv_heads);
      most = std::max(most, node.num_kv_heads);
    }
    EXPECT_LE(most - fewest, 1) << Describe(options);
  }
}

TEST(View, AMemoryNodeHoldsHeadsOfTheRankThatItWorksFor) {
  for (const TopologyOptions& options : AllShapes()) {
    const View view = *View::Of(options);
    for (const Member& node : view.members()) {
      if (node.role != kM) continue;
      for (const Member& compute : view.members()) {
        if (compute.role != kC) continue;
        const int end = compute.first_kv_head + compute.num_kv_heads;
        const bool meet = node.first_kv_head < end &&
                          compute.first_kv_head < node.first_kv_head + node.num_kv_heads;
        EXPECT_EQ(meet, compute.rank == node.rank) << Describe(options);
        const bool inside = node.first_kv_head >= compute.first_kv_head &&
                            node.first_kv_head + node.num_kv_heads <= end;
        EXPECT_EQ(inside, compute.rank == node.rank) << Describe(options);
      }
    }
  }
}

TEST(View, EveryPartOfTheModelIsOnExactlyOneComputeNode) {
  for (const TopologyOptions& options : AllShapes()) {
    const View view = *View::Of(options);
    std::set<std::pair<int, int>> parts;
    std::map<int, std::vector<int>> of_stage;  // [heads] how many ranks of the stage compute it
    int index = 0;
    for (const Member& node : view.members()) {
      if (node.role != kC) continue;
      const ModelShare share = view.ShareOf(node);
      EXPECT_TRUE(parts.emplace(share.stage, share.rank).second) << Describe(options);
      // The order that Placement counts in.
      EXPECT_EQ(share.stage * share.num_ranks + share.rank, index++) << Describe(options);
      EXPECT_EQ(node.group, node.id);
      std::vector<int>& of_head = of_stage[share.stage];
      of_head.resize(static_cast<size_t>(options.num_kv_heads));
      for (int i = 0; i < node.num_kv_heads; ++i)
        ++of_head.at(static_cast<size_t>(node.first_kv_head + i));
    }
    EXPECT_EQ(std::ssize(of_stage), options.num_stages) << Describe(options);
    for (const auto& [stage, of_head] : of_stage)
      EXPECT_THAT(of_head, ::testing::Each(1)) << Describe(options);
  }
}

TEST(View, ComputeNodesThatHoldTheWholeModelAreAlike) {
  TopologyOptions options = Shape(1, 1, 1, 2, 4);
  options.nodes = Nodes({kC, kC, kC, kM, kM});
  const View view = *View::Of(options);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(view.ShareOf(view.members()[i]).whole());
    EXPECT_EQ(view.members()[i].stage, 0);
    EXPECT_EQ(view.members()[i].rank, 0);
    EXPECT_EQ(view.members()[i].num_kv_heads, 4);
  }
}

TEST(View, RolesMayStandInAnyOrder) {
  TopologyOptions options = Shape(2, 1, 2, 2, 5);
  options.nodes = Nodes({kM, kC, kM, kM, kC, kM});
  const View view = *View::Of(options);
  const auto members = view.members();
  EXPECT_EQ(members[2].group, members[0].id);
  EXPECT_EQ(members[5].group, members[3].id);
  EXPECT_EQ(members[0].num_kv_heads, 3);  // the first gets one head more
  EXPECT_EQ(members[2].first_kv_head, 3);
  EXPECT_EQ(members[2].num_kv_heads, 2);
  EXPECT_EQ(members[1].stage, 0);
  EXPECT_EQ(members[4].stage, 1);
}

TEST(View, NodesHaveTheIdsThatTheyAreGiven) {
  TopologyOptions options = Shape(1, 1, 2, 1, 4);
  options.nodes = {{NodeId{2}, kC}, {NodeId{7}, kM}, {NodeId{90}, kM}};
  View view = *View::Of(options);
  EXPECT_EQ(view.Find(NodeId{2})->role, kC);
  EXPECT_EQ(view.Find(NodeId{90})->group, NodeId{7});
  EXPECT_EQ(view.Find(NodeId{90})->first_kv_head, 2);
  for (const uint32_t nobody : {0, 1, 3, 8, 91}) EXPECT_EQ(view.Find(NodeId{nobody}), nullptr);
  view.Lose(NodeId{90});
  EXPECT_EQ(view.Find(NodeId{7})->state, MemberState::kLost) << "of its group";
  EXPECT_EQ(view.Find(NodeId{2})->state, MemberState::kServing);
}

TEST(View, RefusesIdsThatDoNotTellNodesApart) {
  TopologyOptions options = Shape(1, 1, 1, 1, 4);
  for (const auto& [first, second] : {std::pair(0, 1), {3, 3}, {4, 3}}) {
    options.nodes[0].id = NodeId{static_cast<uint32_t>(first)};
    options.nodes[1].id = NodeId{static_cast<uint32_t>(second)};
    EXPECT_THAT(View::Of(options).status().message(), HasSubstr("ids have to ascend"));
  }
}

TEST(View, FindsNodesByIdAndNobodyElse) {
  const View view = *View::Of(Shape(1, 2, 2, 2, 4));
  std::set<NodeId> ids;
  for (const Member& node : view.members()) {
    EXPECT_EQ(view.Find(node.id), &node);
    EXPECT_TRUE(ids.insert(node.id).second);
  }
  EXPECT_FALSE(ids.contains(NodeId{}));  // it stands for no node
  EXPECT_EQ(view.Find(NodeId{}), nullptr);
  EXPECT_EQ(view.Find(NodeId{ids.rbegin()->value + 1}), nullptr);
}

TEST(View, WithOneNodeItsWholeGroupIsLost) {
  for (const TopologyOptions& options : AllShapes()) {
    const View before = *View::Of(options);
    for (const Member& gone : before.members()) {
      View view = before;
      view.Lose(gone.id);
      for (size_t i = 0; i < view.members().size(); ++i) {
        const Member &node = view.members()[i], &was = before.members()[i];
        EXPECT_EQ(node.id, was.id);  // of those that stay too
        EXPECT_EQ(node.first_kv_head, was.first_kv_head);
        EXPECT_EQ(node.num_kv_heads, was.num_kv_heads);
        EXPECT_EQ(node.state == MemberState::kLost, was.group == gone.group) << Describe(options);
      }
    }
  }
}

TEST(View, LosingANodeThatIsNotThereChangesNothing) {
  View view = *View::Of(Shape(1, 1, 1, 2, 4));
  view.Lose(NodeId{});
  view.Lose(NodeId{99});
  for (const Member& node : view.members()) EXPECT_EQ(node.state, MemberState::kServing);
}

TEST(View, RefusesMemoryNodesThatDoNotMakeUpWholeGroups) {
  TopologyOptions odd = Shape(1, 1, 2, 1, 4);
  odd.nodes = Nodes({kC, kM, kM, kM});
  const Status status = View::Of(odd).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("kv_head_parallel 2: 3 memory nodes"));
  EXPECT_EQ(View::Of(Shape(1, 2, 3, 2, 6)).status().code(), StatusCode::kInvalidArgument);
  // Without memory nodes there is nothing to group.
  EXPECT_TRUE(View::Of(Shape(1, 1, 1, 0, 4)).ok());
}

}  // namespace
}  // namespace lamina
