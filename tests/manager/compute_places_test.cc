#include "manager/compute_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Compute nodes c0 and c1 around a memory node; s0 and s1 stand by.
ClusterConfig Cluster() {
  ClusterConfig config;
  config.nodes = {{.name = "c0", .role = NodeRole::kCompute, .port = 1},
                  {.name = "m0", .role = NodeRole::kMemory, .port = 2},
                  {.name = "c1", .role = NodeRole::kCompute, .port = 3}};
  config.standbys = {{.name = "s0", .role = NodeRole::kCompute, .port = 4},
                     {.name = "s1", .role = NodeRole::kCompute, .port = 5}};
  return config;
}
constexpr NodeId kC0{1}, kC1{3};

std::vector<std::string> NamesOf(const std::vector<NodeConfig>& nodes) {
  std::vector<std::string> names;
  for (const NodeConfig& node : nodes) names.push_back(node.name);
  return names;
}

TEST(FillPlaces, AsTheFileHasThemAtFirst) {
  const FilledPlaces filled = FillPlaces(Cluster(), {}, {});
  EXPECT_THAT(NamesOf(filled.config.nodes), ElementsAre("c0", "m0", "c1"));
  EXPECT_THAT(NamesOf(filled.config.standbys), ElementsAre("s0", "s1"));
  EXPECT_THAT(filled.empty, IsEmpty());
}

TEST(FillPlaces, AStandbyTakesThePlaceOfWhoIsGone) {
  const FilledPlaces filled = FillPlaces(Cluster(), {}, {"c1"});
  EXPECT_THAT(NamesOf(filled.config.nodes), ElementsAre("c0", "m0", "s0"));
  EXPECT_EQ(filled.config.nodes[2].port, 4);
  EXPECT_EQ(filled.config.IdOf(2), kC1) << "the place keeps its id";
  EXPECT_THAT(NamesOf(filled.config.standbys), ElementsAre("s1", "c1"));
}

TEST(FillPlaces, WhoHasAPlaceKeepsIt) {
  const FilledPlaces filled = FillPlaces(Cluster(), {{kC0, "s1"}, {kC1, "c1"}}, {});
  EXPECT_THAT(NamesOf(filled.config.nodes), ElementsAre("s1", "m0", "c1"));
  EXPECT_THAT(NamesOf(filled.config.standbys), ElementsAre("s0", "c0"));
}

TEST(FillPlaces, TheOneOfTheFileComesFirstAndNobodyHasTwo) {
  // s0 has c1's place, and c0's daemon is gone: c0's place does not go to s0.
  EXPECT_THAT(NamesOf(FillPlaces(Cluster(), {{kC1, "s0"}}, {"c0"}).config.nodes),
              ElementsAre("s1", "m0", "s0"));
  // s0 is gone, and c1 is back.
  EXPECT_THAT(NamesOf(FillPlaces(Cluster(), {{kC1, "s0"}}, {"s0"}).config.nodes),
              ElementsAre("c0", "m0", "c1"));
  // Nobody but c1 is left for c0's place.
  EXPECT_THAT(NamesOf(FillPlaces(Cluster(), {{kC1, "s0"}}, {"c0", "s1"}).config.nodes),
              ElementsAre("c1", "m0", "s0"));
}

TEST(FillPlaces, APlaceForWhichNobodyIsLeftIsEmpty) {
  const FilledPlaces filled = FillPlaces(Cluster(), {{kC0, "s0"}}, {"c0", "s0", "s1"});
  EXPECT_THAT(filled.empty, ElementsAre(kC0));
  EXPECT_THAT(NamesOf(filled.config.nodes), ElementsAre("s0", "m0", "c1")) << "who had it last";
  EXPECT_THAT(NamesOf(filled.config.standbys), ElementsAre("s1", "c0"));
}

}  // namespace
}  // namespace lamina
