#include "cli/cluster_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "api/cluster_json.h"
#include "manager/cluster_executor.h"
#include "manager/engine.h"

namespace lamina::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(StatusTable, ShowsTheWorstPathAndThatThereAreOthers) {
  std::vector<DataPathStatus> paths = {
      {"c0", "shm", "", ""}, {"c1", "tcp", "", "verbs: no device"}, {"c2", "ucx", "tcp/eth0", ""}};
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(WorstPath(paths)->from, "c1") << turn;
    std::rotate(paths.begin(), paths.begin() + 1, paths.end());
  }
  EXPECT_EQ(WorstPath({}), nullptr);

  EngineStatus status;
  NodeStatus node;
  node.name = "m0";
  node.transport = "tcp";
  node.transport_refused = "verbs: no device";
  node.paths = paths;
  status.nodes = {node};
  const std::string mixed = StatusTable(ClusterStatusJson(status).dump());
  EXPECT_THAT(mixed,
              HasSubstr("\ndata paths to m0: shm from c0; tcp from c1; ucx (tcp/eth0) from c2\n"));
  EXPECT_THAT(mixed, HasSubstr("\ndata paths not used to m0 from c1: verbs: no device\n"));

  status.nodes[0].transport = "ucx";
  status.nodes[0].paths = {paths[2]};
  const std::string alike = StatusTable(ClusterStatusJson(status).dump());
  EXPECT_THAT(alike, HasSubstr("ucx (tcp/eth0)"));
  EXPECT_THAT(alike, Not(HasSubstr("data paths")));
}

TEST(StatusTable, CountsWhatIsParkedAndWhatStartsAgain) {
  EngineStatus status;
  status.serving = true;
  status.scheduler.num_running = 4;
  status.scheduler.num_waiting = 3;
  EXPECT_THAT(StatusTable(ClusterStatusJson(status).dump()),
              HasSubstr("\nrequests: 4 running, 3 waiting; 0 preemptions\n"));
  status.scheduler.num_parked = 2;
  status.num_rebuilding = 5;
  EXPECT_THAT(StatusTable(ClusterStatusJson(status).dump()),
              HasSubstr("\nrequests: 4 running, 3 waiting, 2 parked until a node comes that can "
                        "hold them, 5 start again; 0 preemptions\n"));
}

TEST(StatusTable, ToleratesWhatItDoesNotKnow) {
  for (const char* text :
       {"", "[]", "{}", R"({"nodes": 3})",
        R"({"nodes": [3, {"name": 5, "capacity_tokens": "x"}], "scheduler": []})"}) {
    EXPECT_THAT(StatusTable(text), HasSubstr("not serving")) << text;
  }
  EXPECT_THAT(StatusTable(R"({"serving": false, "detail": "node m0 is lost"})"),
              HasSubstr("not serving: node m0 is lost"));
}

}  // namespace
}  // namespace lamina::testing
