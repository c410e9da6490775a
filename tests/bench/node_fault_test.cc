#include "bench/recovery/node_fault.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina::testing {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> NamesOf(const std::vector<NodeFault>& faults) {
  std::vector<std::string> names;
  for (const NodeFault& fault : faults) names.push_back(fault.Name());
  return names;
}

ClusterConfig ThreeNodes() {
  ClusterConfig config;
  for (const char* name : {"c0", "m0", "m1"}) config.nodes.emplace_back().name = name;
  return config;
}

// The error of what is typed, for a cluster of c0, m0 and m1.
std::string ErrorOf(const FaultTexts& texts) {
  const Result<std::vector<NodeFault>> faults = ParseFaults(texts);
  return (faults.ok() ? CheckFaults(*faults, ThreeNodes()) : faults.status()).message();
}

TEST(ParseFaults, ReadsThemInTheOrderOfTheirTimes) {
  const Result<std::vector<NodeFault>> faults = ParseFaults(
      {.kill = {"m0@5s", "c0@1m"}, .stop = {"m1@500ms+3s", "c0@7s"}, .restart = {"m0@6.5s"}});
  ASSERT_TRUE(faults.ok()) << faults.status();
  EXPECT_THAT(NamesOf(*faults), ElementsAre("stop m1@500ms", "continue m1@3.5s", "kill m0@5s",
                                            "restart m0@6.5s", "stop c0@7s", "kill c0@1m"));
  EXPECT_EQ(faults->at(2).node, "m0");
  EXPECT_EQ(faults->at(2).at, seconds(5));
}

TEST(ParseFaults, QuotesWhatItCannotRead) {
  for (const char* text : {"m0", "@5s", "m0@", "m0@5", "m0@soon", "m0@5s+3s"}) {
    EXPECT_THAT(ErrorOf({.kill = {text}}),
                HasSubstr("--kill '" + std::string(text) + "': expected NAME@TIME, such as m0@5s"));
  }
  for (const char* text : {"m0@+3s", "m0@5s+", "m0@5s+3"}) {
    EXPECT_THAT(ErrorOf({.stop = {text}}),
                HasSubstr("--stop '" + std::string(text) +
                          "': expected NAME@TIME or NAME@TIME+DURATION, such as m0@5s+3s"));
  }
  EXPECT_THAT(ErrorOf({.restart = {"m0@7"}}),
              HasSubstr("--restart 'm0@7': expected NAME@TIME, such as m0@5s; '7' is not a "
                        "duration"));
}

TEST(CheckFaults, NamesTheNodesThatThereAre) {
  EXPECT_EQ(ErrorOf({.kill = {"m7@5s"}}),
            "kill m7@5s: the cluster file has no node 'm7'; it has c0, m0, m1, and 'manager' is "
            "the manager");
}

TEST(CheckFaults, ANodeIsKilledOnceUnlessItIsStartedAgain) {
  EXPECT_THAT(ErrorOf({.kill = {"m0@9s", "m0@5s"}}),
              HasSubstr("kill m0@9s: it is dead since 'kill m0@5s'; --restart m0@TIME"));
  EXPECT_EQ(ErrorOf({.kill = {"m0@9s", "m0@5s"}, .restart = {"m0@7s"}}), "");
  EXPECT_EQ(ErrorOf({.kill = {"m0@5s", "m1@5s"}}), "") << "two nodes";
}

TEST(CheckFaults, ANodeHasToBeInAStateForTheFault) {
  EXPECT_THAT(ErrorOf({.restart = {"m0@5s"}}),
              HasSubstr("restart m0@5s: it was not killed before; add --kill m0@TIME"));
  EXPECT_THAT(ErrorOf({.stop = {"m0@5s"}, .restart = {"m0@7s"}}), HasSubstr("restart m0@7s"))
      << "one that hangs is there";
  EXPECT_THAT(ErrorOf({.kill = {"m0@5s"}, .stop = {"m0@6s"}}),
              HasSubstr("stop m0@6s: it does not run since 'kill m0@5s'"));
  EXPECT_THAT(ErrorOf({.stop = {"m0@5s+4s", "m0@6s"}}),
              HasSubstr("stop m0@6s: it does not run since 'stop m0@5s'"));
  EXPECT_THAT(ErrorOf({.kill = {"m0@6s"}, .stop = {"m0@5s+4s"}}),
              HasSubstr("continue m0@9s: it cannot go on, because of 'kill m0@6s'"));
  EXPECT_EQ(ErrorOf({.kill = {"m0@6s"}, .stop = {"m0@5s"}}), "") << "one that hangs can be killed";
  EXPECT_EQ(ErrorOf({.stop = {"m0@5s+1s", "m0@7s+1s"}}), "") << "one after the other";
}

TEST(CheckFaults, TheManagerIsMeasuredByItself) {
  EXPECT_EQ(ErrorOf({.kill = {"manager@5s"}, .restart = {"manager@6s"}}), "");
  EXPECT_THAT(ErrorOf({.kill = {"manager@5s", "manager@6s"}}), HasSubstr("it is dead since"));
  EXPECT_EQ(ErrorOf({.kill = {"m0@5s", "manager@6s"}}),
            "kill manager@6s and kill m0@5s: what is done to the manager is measured by itself");
}

TEST(CheckFaults, OnlyDaemonsOfThisMachineAreAtHand) {
  ClusterConfig config = ThreeNodes();
  config.nodes[1].host = "192.0.2.17";
  EXPECT_THAT(CheckFaults({}, config).message(),
              HasSubstr("node 'm0' is on host 192.0.2.17: faults are done to daemons that this "
                        "command starts on this machine"));
}

}  // namespace
}  // namespace lamina::testing
