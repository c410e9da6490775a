// What the simulator tells about a run.
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan/simulate/simulation_report.h"
#include "tests/plan/simulate_fixture.h"

namespace lamina::testing {
namespace {

TEST_F(SimulateTest, SaysWhatTheWorkloadLeftOut) {
  const ClusterModel cluster = Cluster(1, 1, "40GB");
  RequestTrace workload = Alike(3, 50, 4);
  EXPECT_EQ(ToText(cluster, Run(cluster, workload)).find("left out"), std::string::npos);
  workload.num_left_out = 2;
  const SimulationResult result = Run(cluster, workload);
  EXPECT_NE(ToText(cluster, result).find("2 more left out"), std::string::npos);
  EXPECT_EQ(ToJson(cluster, result).at("num_left_out"), 2);
}

TEST_F(SimulateTest, SaysWhyItRefuses) {
  const ClusterModel cluster = Cluster(1, 1, "1GB",
                                       "limits: {max_num_seqs: 2, max_num_batched_tokens: 64, "
                                       "max_num_queued_reqs: 5, max_model_len: 2000}\n");
  const auto refusals = [](const SimulationResult& result) { return result.refusals; };
  EXPECT_EQ(refusals(Run(cluster, Alike(10, 10, 10))),
            (std::map<std::string, int64_t>{{"5 were waiting already", 5}}));
  EXPECT_EQ(refusals(Run(cluster, Alike(1, 1500, 100))),
            (std::map<std::string, int64_t>{{"longer than the memory nodes have room for", 1}}));
  RequestTrace some = Alike(4, 10, 10, 1);
  some.requests[1].input_tokens = some.requests[2].input_tokens = 2000;
  const SimulationResult result = Run(cluster, some);
  EXPECT_EQ(result.refusals,
            (std::map<std::string, int64_t>{{"longer than max_model_len, 2000 tokens", 2}}));
  EXPECT_EQ(FindLimit(cluster, result).resource, "refusals");
  EXPECT_EQ(ToJson(cluster, result).at("refusals").at("longer than max_model_len, 2000 tokens"), 2);
  EXPECT_NE(ToText(cluster, result).find("2 refused: longer than max_model_len, 2000 tokens"),
            std::string::npos);
}

TEST_F(SimulateTest, ReportsWhatLimits) {
  SimulationOptions options;
  options.prompts_appear = true;
  const ClusterModel wide = Cluster(1, 1, "40GB",
                                    "limits: {max_num_seqs: 16, max_num_batched_tokens: "
                                    "64}\npipeline: {policy: fixed, num_batches: 4}\n");
  const SimulationResult long_contexts = Run(wide, Alike(20, 1900, 100), options);
  EXPECT_EQ(FindLimit(wide, long_contexts).resource, "memory nodes");
  const SimulationResult idle = Run(wide, Alike(5, 10, 2, 1), options);
  EXPECT_EQ(FindLimit(wide, idle).resource, "requests");
}

// A slow device works on one piece for longer than a piece of the timeline: each has only what lies
// in it.
TEST_F(SimulateTest, NothingIsBusyForMoreThanAllOfTheTime) {
  const ClusterModel cluster = Cluster(
      1, 2, "40GB", "pipeline: {policy: fixed, num_batches: 3}\nnetwork: {modelled_gb_per_s: 2}\n");
  SimulationOptions options;
  options.changes = {*NodeChange::ParseSlow("c0:20@0"), *NodeChange::ParseSlow("m1:400@0")};
  const SimulationResult result = Run(cluster, Alike(12, 300, 6), options);
  const nlohmann::ordered_json timeline = ToJson(cluster, result).at("timeline");
  const double seconds = timeline.at("seconds_per_point");
  const double end = std::chrono::duration<double>(result.end.time_since_epoch()).count();
  for (const auto& [name, busy] :
       std::map<std::string, std::vector<double>>{{"compute_busy", result.compute_busy},
                                                  {"memory_busy", result.memory_busy},
                                                  {"network_busy", result.network_busy}}) {
    double sum = 0;
    for (const double share : timeline.at(name)) {
      EXPECT_LE(share, 1 + 1e-6) << name;
      sum += share;
    }
    double mean = 0;
    for (const double share : busy) mean += share / static_cast<double>(busy.size());
    EXPECT_NEAR(sum * seconds, mean * end, 1e-3 * end) << name << ": the pieces are all of it";
  }
}

TEST_F(SimulateTest, ReportsInTheNamesOfVllm) {
  const ClusterModel cluster = Cluster(1, 1, "40GB");
  const SimulationResult result = Run(cluster, Alike(3, 50, 4));
  const nlohmann::ordered_json json = ToJson(cluster, result);
  EXPECT_EQ(json.at("completed"), 3);
  EXPECT_EQ(json.at("total_output_tokens"), 12);
  EXPECT_NEAR(json.at("output_throughput").get<double>(), 12 / json.at("duration").get<double>(),
              1e-6);
  const RequestTimes& request = result.requests[1];
  EXPECT_NEAR(json.at("median_tpot_ms").get<double>(), 1e3 * request.tpot_s(), 1e-6);
  EXPECT_NEAR(json.at("mean_itl_ms").get<double>(), json.at("mean_tpot_ms").get<double>(), 1e-6);
  EXPECT_NEAR(json.at("p99_itl_ms").get<double>(), json.at("mean_itl_ms").get<double>(),
              0.01 * json.at("mean_itl_ms").get<double>());
  for (const char* key :
       {"mean_ttft_ms", "std_e2el_ms", "request_throughput", "limit", "kv", "timeline"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_NE(ToSvg(cluster, result).find("<polyline"), std::string::npos);
}

TEST_F(SimulateTest, ReportsEachLoss) {
  const ClusterModel cluster = Cluster(1, 3, "40GB");
  SimulationOptions options;
  EXPECT_FALSE(ToJson(cluster, Run(cluster, Alike(6, 100, 400), options)).contains("losses"));
  options.changes = {*NodeChange::ParseFail("m2@200ms"), *NodeChange::ParseFail("m0@400ms")};
  const SimulationResult result = Run(cluster, Alike(6, 100, 400), options);
  const auto losses = ToJson(cluster, result).at("losses");
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_EQ(losses[0].at("node"), "m2");
  EXPECT_EQ(losses[0].at("interrupted"), 2);
  EXPECT_EQ(losses[1].at("node"), "m0");
  EXPECT_EQ(losses[1].at("interrupted"), 3);
  EXPECT_EQ(losses[1].at("resumed"), 3);
  EXPECT_EQ(losses[1].at("largest_gap_ms"), 1e3 * result.losses[1].largest_gap_s);
  const std::string text = ToText(cluster, result);
  EXPECT_NE(text.find("lost at 0.40 s: 3 of 3 interrupted requests resumed"), std::string::npos)
      << text;
}

}  // namespace
}  // namespace lamina::testing
