// Simulated nodes that become slow or are lost.
#include <algorithm>
#include <string>
#include <vector>

#include "plan/simulate/simulation.h"
#include "tests/plan/simulate_fixture.h"

namespace lamina::testing {
namespace {

TEST_F(SimulateTest, ASlowNodeTakesLongerFromThenOn) {
  SimulationOptions options;
  options.prompts_appear = true;
  const ClusterModel cluster = Cluster(1, 1, "40GB");
  const double fast = StepTime(1, AttentionTime(1, 101)),
               slow = StepTime(1, 3 * AttentionTime(1, 102));
  options.changes = {*NodeChange::ParseSlow("m0:3@" + std::to_string(fast * 1e6) + "us")};
  const SimulationResult result = Run(cluster, Alike(1, 100, 3), options);
  EXPECT_NEAR(result.requests[0].e2e_s(), fast + slow, 1e-6);
  options.changes = {*NodeChange::ParseSlow("c0:2@0")};
  double twice = 0;
  for (int k = 0; k <= kLayers; ++k) twice += 2 * SliceTime(k, 1, 1);
  EXPECT_NEAR(Run(cluster, Alike(1, 100, 2), options).requests[0].e2e_s(),
              twice + kLayers * AttentionTime(1, 101), 1e-6);
}

int64_t CountOf(const SimulationResult& result, RequestTimes::Outcome outcome) {
  return std::ranges::count(result.requests, outcome, &RequestTimes::outcome);
}

TEST_F(SimulateTest, RequestsOfALostMemoryNodeStartAgainElsewhere) {
  const ClusterModel cluster = Cluster(1, 2, "40GB");
  SimulationOptions options;
  const SimulationResult whole = Run(cluster, Alike(8, 100, 400), options);
  options.changes = {*NodeChange::ParseFail("m1@500ms")};
  const SimulationResult result = Run(cluster, Alike(8, 100, 400), options);
  int slower = 0;
  for (size_t i = 0; i < result.requests.size(); ++i) {
    EXPECT_EQ(result.requests[i].outcome, RequestTimes::Outcome::kDone);
    EXPECT_EQ(result.requests[i].output_tokens, 400);
    slower += result.requests[i].e2e_s() > whole.requests[i].e2e_s() ? 1 : 0;
  }
  EXPECT_GE(slower, 4) << "half of them were there, and are prefilled again";
  EXPECT_EQ(result.used_tokens_at_end, 0);
  options.changes.push_back(*NodeChange::ParseFail("m0@600ms"));
  const SimulationResult none = Run(cluster, Alike(8, 100, 400, 0.2), options);
  EXPECT_NE(none.failure, "");
  EXPECT_EQ(FindLimit(cluster, none).resource, "failure") << FindLimit(cluster, none).why;
  EXPECT_EQ(FindLimit(cluster, none).why, none.failure);
  EXPECT_EQ(CountOf(none, RequestTimes::Outcome::kUnfinished), 0);
}

// Two requests, one on each node. The step in flight ends without the lost one's token, and the
// next one prefills what it has.
TEST_F(SimulateTest, SaysWhatTheLossOfAMemoryNodeCost) {
  const ClusterModel cluster =
      Cluster(1, 2, "40GB", "pipeline: {num_batches: 1}\nlimits: {max_num_batched_tokens: 1024}\n");
  SimulationOptions options;
  const RequestTimes whole = Run(cluster, Alike(2, 100, 400), options).requests[1];
  options.changes = {*NodeChange::ParseFail("m1@200ms")};
  const SimulationResult result = Run(cluster, Alike(2, 100, 400), options);
  ASSERT_EQ(result.losses.size(), 1u);
  const NodeLoss& loss = result.losses[0];
  EXPECT_EQ(loss.node, "m1");
  EXPECT_EQ(loss.at_s, 0.2);
  EXPECT_EQ(loss.num_interrupted, 1);
  EXPECT_EQ(loss.num_resumed, 1);
  double rows = 101, step = 0;  // at the first token
  for (double now = whole.ttft_s(); now < 0.2; now += step)
    step = StepTime(2, AttentionTime(1, rows++));
  --rows;  // the last step was in flight
  EXPECT_NEAR(static_cast<double>(loss.tokens_again), rows, 1);

  // The prompt is prefilled, and what was generated comes in decode rows.
  double again = kLayers * PromptAttentionTime(100);
  for (int token = 101; token <= loss.tokens_again; ++token)
    again += kLayers * AttentionTime(1, token);
  for (int k = 0; k <= kLayers; ++k) again += SliceTime(k, rows, 1);
  EXPECT_NEAR(loss.largest_gap_s, again + step, 0.03 * again);
  EXPECT_LT(loss.largest_gap_others_s, again / 2) << "it takes several steps";
  EXPECT_EQ(loss.first_resumed_s, loss.last_resumed_s);
  EXPECT_GT(loss.last_resumed_s, loss.largest_gap_s - step);
  EXPECT_LT(loss.last_resumed_s, loss.largest_gap_s);
}

TEST_F(SimulateTest, WhatNoMemoryNodeThatIsLeftCanHoldFails) {
  ClusterModel cluster = Cluster(1, 2, "40GB");
  cluster.kv_nodes[0].capacity_tokens = 450;
  RequestTrace workload = Alike(8, 100, 400);
  for (size_t i = 0; i < 4; ++i) workload.requests[i].output_tokens = 300;
  SimulationOptions options;
  options.changes = {*NodeChange::ParseFail("m1@500ms")};
  const SimulationResult result = Run(cluster, workload, options);
  for (size_t i = 0; i < result.requests.size(); ++i)
    EXPECT_EQ(result.requests[i].outcome,
              i < 4 ? RequestTimes::Outcome::kDone : RequestTimes::Outcome::kFailed)
        << i;
  EXPECT_EQ(result.failure, "");
  EXPECT_EQ(result.used_tokens_at_end, 0);
}

TEST_F(SimulateTest, IdsOfNodesMayHaveGaps) {
  ClusterModel cluster = Cluster(2, 3, "40GB", "pipeline: {policy: rotational}\n");
  SimulationOptions options;
  options.changes = {*NodeChange::ParseFail("m1@300ms"), *NodeChange::ParseFail("c1@500ms")};
  const RequestTrace workload = Mixed(30, 1, 0.01);
  const std::string before = Lines(Run(cluster, workload, options));
  const auto change = [](NodeId& id) { id = NodeId{id.value * id.value + 40}; };
  for (ComputeNodeModel& node : cluster.compute) change(node.id);
  for (MemoryNodeModel& node : cluster.memory) change(node.id);
  for (KvNode& node : cluster.kv_nodes) change(node.id);
  EXPECT_EQ(Lines(Run(cluster, workload, options)), before);
}

TEST_F(SimulateTest, WhenAComputeNodeIsLostRequestsOnlyWait) {
  const ClusterModel cluster = Cluster(2, 2, "40GB", "pipeline: {policy: rotational}\n");
  SimulationOptions options;
  const RequestTrace workload = Alike(12, 100, 300);
  const SimulationResult whole = Run(cluster, workload, options);
  options.changes = {*NodeChange::ParseFail("c1@500ms")};
  const SimulationResult lost = Run(cluster, workload, options);
  for (const RequestTimes& request : lost.requests) {
    EXPECT_EQ(request.outcome, RequestTimes::Outcome::kDone);
    EXPECT_EQ(request.output_tokens, 300);
  }
  EXPECT_GT(lost.end, whole.end + milliseconds(50)) << "connecting anew, and prefill again";
  ASSERT_EQ(lost.losses.size(), 1u);
  EXPECT_EQ(lost.losses[0].num_interrupted, 12);
  EXPECT_EQ(lost.losses[0].num_resumed, 12);
  EXPECT_EQ(lost.losses[0].tokens_again, 0);
  EXPECT_GT(lost.losses[0].first_resumed_s, 0.05);
  EXPECT_GT(lost.losses[0].largest_gap_s, lost.losses[0].last_resumed_s);
  options.changes.push_back(*NodeChange::ParseFail("c0@600ms"));
  EXPECT_NE(Run(cluster, workload, options).failure, "");
}

TEST_F(SimulateTest, AStandbyTakesThePlaceOfALostComputeNode) {
  for (const int num_compute_nodes : {1, 2}) {
    ClusterModel cluster =
        Cluster(num_compute_nodes, 2, "40GB",
                num_compute_nodes > 1 ? "parallel: {pipeline_parallel_size: 2}\n" : "");
    const RequestTrace workload = Alike(12, 100, 300);
    SimulationOptions options;
    const SimulationResult whole = Run(cluster, workload, options);
    options.changes = {*NodeChange::ParseFail("c0@500ms")};
    EXPECT_NE(Run(cluster, workload, options).failure, "") << "nobody stands by";
    cluster.config.standbys.resize(1);
    const SimulationResult result = Run(cluster, workload, options);
    EXPECT_EQ(result.failure, "");
    EXPECT_EQ(CountOf(result, RequestTimes::Outcome::kDone), 12);
    EXPECT_GT(result.end, whole.end + options.reconnect);
    EXPECT_LT(result.end, whole.end + 2 * options.reconnect) << "only the step in flight is lost";
    options.changes.push_back(*NodeChange::ParseFail("c0@800ms"));
    EXPECT_NE(Run(cluster, workload, options).failure, "") << "there is one standby only";
  }
}

TEST(NodeChangeTest, SaysWhatWasExpected) {
  EXPECT_EQ(NodeChange::ParseSlow("m0:2.5@10s")->factor, 2.5);
  EXPECT_EQ(NodeChange::ParseSlow("m0:2.5@250ms")->at_s, 0.25);
  EXPECT_EQ(NodeChange::ParseSlow("m0:50@1m")->at_s, 60);
  EXPECT_EQ(NodeChange::ParseFail("m0@2h")->at_s, 7200);
  EXPECT_EQ(NodeChange::ParseFail("m0@1.5")->at_s, 1.5);
  EXPECT_EQ(NodeChange::ParseFail("m-1@3")->node, "m-1");
  for (const char* wrong : {"m0", "m0:2", "m0@3", ":2@3", "m0:0@3", "m0:x@3", "m0:1e300@0s",
                            "m0:1e-300@0s", "m0:nan@0s", "m0:2@x", "m0:2@1d", "m0:2@"}) {
    EXPECT_NE(NodeChange::ParseSlow(wrong).status().message().find("NAME:FACTOR@TIME"),
              std::string::npos)
        << wrong;
  }
  EXPECT_EQ(NodeChange::ParseSlowLink("c0:2@10s")->kind, NodeChange::Kind::kSlowLink);
  EXPECT_NE(NodeChange::ParseSlowLink("c0:2").status().message().find("--slow-link 'c0:2'"),
            std::string::npos);
  for (const char* wrong : {"m0", "@3", "m0@"})
    EXPECT_FALSE(NodeChange::ParseFail(wrong).ok()) << wrong;
}

TEST_F(SimulateTest, NamesANodeThatThereIsNot) {
  SimulationOptions options;
  options.changes = {*NodeChange::ParseFail("m7@1s")};
  const Status status = Simulate(Cluster(1, 1, "40GB"), Alike(1, 1, 1), options).status();
  EXPECT_NE(status.message().find("'m7'"), std::string::npos) << status.message();
  options.changes = {*NodeChange::ParseSlowLink("m0:2@1s")};
  const Status link = Simulate(Cluster(1, 1, "1GB"), Alike(1, 1, 1), options).status();
  EXPECT_NE(link.message().find("'m0' is a memory node"), std::string::npos) << link.message();
}

TEST_F(SimulateTest, EventsComeFromAFileToo) {
  WriteFile(folder_ / "events.yaml",
            "events:\n- {at: 10s, slow: m0, factor: 2}\n- {at: 20s, fail: m1}\n");
  const Result<std::vector<NodeChange>> changes = NodeChange::Load(folder_ / "events.yaml");
  ASSERT_TRUE(changes.ok()) << changes.status().message();
  EXPECT_EQ((*changes)[0].factor, 2);
  EXPECT_EQ((*changes)[1].kind, NodeChange::Kind::kFail);
  EXPECT_EQ((*changes)[1].at_s, 20);
  WriteFile(folder_ / "minutes.yaml", "events:\n- {at: 1m, slow: m0, factor: 2}\n");
  EXPECT_EQ(NodeChange::Load(folder_ / "minutes.yaml")->front().at_s, 60);
  WriteFile(folder_ / "link.yaml", "events:\n- {at: 1m, slow_link: c0, factor: 2}\n");
  EXPECT_EQ(NodeChange::Load(folder_ / "link.yaml")->front().kind, NodeChange::Kind::kSlowLink);
  WriteFile(folder_ / "both.yaml", "events:\n- {at: 1m, slow_link: c0, slow: c0, factor: 2}\n");
  EXPECT_NE(NodeChange::Load(folder_ / "both.yaml").status().message().find("both.yaml:2"),
            std::string::npos);
  WriteFile(folder_ / "wrong.yaml", "events:\n- {at: 10s}\n");
  EXPECT_NE(NodeChange::Load(folder_ / "wrong.yaml").status().message().find("wrong.yaml:2"),
            std::string::npos);
  WriteFile(folder_ / "still.yaml", "events:\n- {at: 10s, slow: m0, factor: 1e300}\n");
  EXPECT_NE(NodeChange::Load(folder_ / "still.yaml").status().message().find("still.yaml:2"),
            std::string::npos);
}

}  // namespace
}  // namespace lamina::testing
