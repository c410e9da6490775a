// Weights outside of memory in the simulator, where the interval is chosen by objectives, and where
// nodes share a bus.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cost/step_profile.h"
#include "plan/offloaded_step.h"
#include "tests/plan/simulate_fixture.h"

namespace lamina::testing {
namespace {

// A slice has 634 MB, the link moves 10 GB/s, and a step of one row computes for less than a
// millisecond: it takes 63 ms for each slice that lies outside.
constexpr double kSliceSeconds = 2 * (kQkvWeights + kRestWeights) / 10e9;

class SimulateOffloadTest : public SimulateTest {
 protected:
  SimulateOffloadTest() {
    std::vector<::lamina::StepTime> times;
    for (const int interval : {1, 2, 4, 8, 0}) {
      const double outside = interval == 0 ? 0 : 41 / interval;
      for (const double rows : {1, 2})
        times.push_back({false, interval, rows, 1, 0.001 * rows + outside * kSliceSeconds});
    }
    WriteFile(folder_ / "steps.csv", StepProfile::ToCsv(times));
  }

  // The TPOT of each request: one for each compute node, all from the start.
  std::vector<double> Tpots(int num_compute, const std::string& offload, const std::string& more) {
    std::string yaml =
        "version: 1\ncluster: {device_catalog: devices.yaml}\n"
        "buses: [{name: pcie0, gb_per_s: 10}]\nnodes:\n";
    for (int i = 0; i < num_compute; ++i) {
      yaml += fmt::format(
          "- {{name: c{}, role: compute, port: {}, device: \"modelled:Flops\", offload: {}}}\n", i,
          7000 + i, offload);
    }
    yaml +=
        "- {name: m0, role: memory, port: 7100, device: \"modelled:Bytes\", memory: 40GB}\n"
        "model: {path: " +
        SourcePath("/configs/models/llama-13b") + "}\n" + more;
    WriteFile(folder_ / "offload.yaml", yaml);
    Result<ClusterModel> cluster = ClusterModel::Load(folder_ / "offload.yaml", {});
    EXPECT_TRUE(cluster.ok()) << cluster.status();
    SimulationOptions options;
    options.prompts_appear = true;
    last_ = Run(*cluster, Alike(num_compute, 1, 40), options);
    std::vector<double> tpots;
    for (const RequestTimes& request : last_.requests) {
      if (request.outcome == RequestTimes::Outcome::kDone) tpots.push_back(request.tpot_s());
    }
    return tpots;
  }

  SimulationResult last_;
};

TEST_F(SimulateOffloadTest, TheIntervalIsWhatObjectivesAllow) {
  const std::string offload = "{interval: auto, record: steps.csv, gb_per_s: 10}";
  for (const int num_outside : {10, 5}) {  // intervals 4 and 8
    const std::string slo =
        fmt::format("slo: {{tpot: {}ms}}\n", static_cast<int>(1100 * num_outside * kSliceSeconds));
    const std::vector<double> tpots = Tpots(1, offload, slo);
    ASSERT_EQ(tpots.size(), 1u);
    // The first of 39 steps finds all in memory.
    const double expected = num_outside * kSliceSeconds * 38 / 39;
    EXPECT_NEAR(tpots[0], expected, 0.005 * expected);
  }
  const std::vector<double> free = Tpots(1, offload, "");
  ASSERT_EQ(free.size(), 1u);
  EXPECT_LT(free[0], 0.002) << "without an objective all stays in memory";
  EXPECT_TRUE(Tpots(1, offload, "slo: {tpot: 1ms}\n").empty());
  EXPECT_EQ(last_.refusals.count("a TPOT that cannot be kept"), 1u);
}

TEST_F(SimulateOffloadTest, NodesOnOneBusWaitForEachOther) {
  const double alone = 10 * kSliceSeconds;
  for (const double tpot : Tpots(2, "{interval: 4, gb_per_s: 10}", ""))
    EXPECT_NEAR(tpot, alone, 0.02 * alone) << "each has a link";
  for (const double tpot : Tpots(2, "{interval: 4, bus: pcie0}", ""))
    EXPECT_NEAR(tpot, 2 * alone, 0.05 * 2 * alone);
}

TEST_F(SimulateOffloadTest, TwoNodesOnOneBusKeepTheirObjectiveOnlyWithRegardToEachOther) {
  const std::string offload = "{interval: auto, record: steps.csv, bus: pcie0}";
  const double objective = 1.1 * 10 * kSliceSeconds;
  const std::string slo = fmt::format("slo: {{tpot: {}ms}}\n", static_cast<int>(1e3 * objective));
  EXPECT_NEAR(Tpots(1, offload, slo).at(0), 10 * kSliceSeconds, 0.02) << "alone";

  std::vector<double> tpots = Tpots(2, offload, slo);
  ASSERT_EQ(tpots.size(), 2u);
  for (const double tpot : tpots) {
    EXPECT_LE(tpot, objective);
    EXPECT_GT(tpot, 0.8 * objective) << "the bus is used";
  }
  tpots = Tpots(2, offload, slo + "scheduling: {coordinate_buses: false}\n");
  ASSERT_EQ(tpots.size(), 2u);
  EXPECT_GT(std::ranges::max(tpots), 1.2 * objective);
}

// Layers of a KV cache that the compute node keeps itself.
TEST_F(SimulateOffloadTest, LayersThatLieOutsideGiveRoomForMoreTokens) {
  const auto load = [&](const std::string& more) {
    WriteFile(folder_ / "kv.yaml",
              "version: 1\ncluster: {device_catalog: devices.yaml}\nnodes:\n- {name: c0, role: "
              "compute, port: 7000, device: \"modelled:Flops\", memory: 1GB" +
                  more + "}\nmodel: {path: " + SourcePath("/configs/models/llama-13b") + "}\n");
    return ClusterModel::Load(folder_ / "kv.yaml", {});
  };
  const double layer_token = 2 * 2 * kHidden;  // bytes
  Result<ClusterModel> plain = load("");
  ASSERT_TRUE(plain.ok()) << plain.status();
  const auto capacity = static_cast<int64_t>(1e9 / layer_token / kLayers);
  EXPECT_EQ(plain->kv_nodes[0].capacity_tokens, capacity);
  const double without = Run(*plain, Alike(1, 1, 40)).requests[0].tpot_s();

  // 20 places for 40 layers: twice the tokens.
  Result<ClusterModel> fast = load(", kv_offload: {expansion: 2, gb_per_s: 1000000}");
  ASSERT_TRUE(fast.ok()) << fast.status();
  EXPECT_EQ(fast->kv_nodes[0].capacity_tokens, static_cast<int64_t>(1e9 / layer_token / 20));
  EXPECT_NEAR(Run(*fast, Alike(1, 1, 40)).requests[0].tpot_s(), without, 0.02 * without);

  Result<ClusterModel> slow = load(", kv_offload: {expansion: 2, gb_per_s: 1}");
  ASSERT_TRUE(slow.ok()) << slow.status();
  // A step cannot end before the layers have come that were not there.
  const double all = 20 * layer_token * static_cast<double>(capacity * 2) / 1e9;
  const double tpot = Run(*slow, Alike(1, 1, 40)).requests[0].tpot_s();
  EXPECT_GT(tpot, 0.95 * all);
  EXPECT_LT(tpot, 2.1 * all);
  SimulationOptions busy_link;
  busy_link.changes = {*NodeChange::ParseSlowLink("c0:2@0")};
  EXPECT_NEAR(Run(*slow, Alike(1, 1, 40), busy_link).requests[0].tpot_s(), 2 * tpot, 0.02 * tpot)
      << "others use half of the link";
  EXPECT_NE(load(", kv_offload: {expansion: 1.01}").status().message().find("leaves none of 40"),
            std::string::npos);
}

// Pie's Figure 4, and a copy that takes no longer than a layer.
TEST(FewestPlaces, WithoutWaits) {
  EXPECT_EQ(*FewestPlacesWithoutWaits(9, std::chrono::seconds(1), std::chrono::seconds(2)), 7);
  EXPECT_EQ(*FewestPlacesWithoutWaits(9, std::chrono::seconds(1), std::chrono::milliseconds(900)),
            3);
  EXPECT_EQ(*FewestPlacesWithoutWaits(9, std::chrono::seconds(1), std::chrono::hours(1)), 9);
}

// OPT-13B on the GH200 of the catalog, with so much memory for KV.
class SimulatePieTest : public SimulateOffloadTest {
 protected:
  SimulationResult Serve(const std::string& memory, const std::string& offload,
                         const RequestTrace& requests, const std::string& device = "GH200") {
    const bool is_own = device != "GH200";
    WriteFile(folder_ / "kv.yaml",
              "version: 1\ncluster: {device_catalog: " +
                  (is_own ? "devices.yaml" : SourcePath("/configs/devices.yaml")) +
                  "}\nlimits: {max_num_seqs: 256, max_num_queued_reqs: 1000}\n"
                  "nodes:\n- {name: c0, role: compute, port: 7000, device: \"modelled:" +
                  device + "\", memory: " + memory + offload +
                  "}\nmodel: {path: " + SourcePath("/configs/models/opt-13b") + "}\n");
    const Result<ClusterModel> cluster = ClusterModel::Load(folder_ / "kv.yaml", {});
    EXPECT_TRUE(cluster.ok()) << cluster.status();
    SimulationResult result = Run(*cluster, requests);
    EXPECT_EQ(result.used_tokens_at_end, 0);
    return result;
  }
};

constexpr char kAdaptive[] = ", kv_offload: {expansion: auto, max_expansion: 3}";

TEST_F(SimulatePieTest, NothingIsGainedWhereRequestsFindRoomAsTheyCome) {
  // Three requests at a time, of which 3 GB hold seven.
  const RequestTrace slow = Alike(60, 160, 330, 1.5);
  EXPECT_EQ(Lines(Serve("3GB", kAdaptive, slow)), Lines(Serve("3GB", "", slow)));
  // More come than 3 GB hold, but not more than 12 GB do.
  const RequestTrace fast = Alike(60, 160, 330, 0.25);
  const SimulationResult none = Serve("12GB", "", fast);
  EXPECT_EQ(none.num_preemptions, 0);
  EXPECT_EQ(Lines(Serve("12GB", kAdaptive, fast)), Lines(none));
  const SimulationResult small = Serve("3GB", "", fast);
  EXPECT_LT(Serve("3GB", kAdaptive, fast).end, small.end) << "it is there where it is of use";
}

// The device needs the same time for a row whether there are many or few, so more sequences at a
// time are no faster; and prompts and answers are such that none is ever computed again.
TEST_F(SimulatePieTest, NothingIsGainedWhereArithmeticIsTheLimit) {
  const RequestTrace requests = Alike(100, 400, 16);
  const auto seconds = [&](const std::string& offload) {
    const SimulationResult result = Serve("3GB", offload, requests, "Flops");
    EXPECT_EQ(result.num_preemptions, 0);
    return std::chrono::duration<double>(result.end.time_since_epoch()).count();
  };
  const double none = seconds("");
  for (const char* expansion : {"1.5", "2", "auto"}) {
    const double with =
        seconds(fmt::format(", kv_offload: {{expansion: {}, gb_per_s: 1000000}}", expansion));
    EXPECT_NEAR(with, none, 0.005 * none) << expansion;
  }
}

// More requests than find room at a time.
TEST_F(SimulatePieTest, AnExpansionThatFollowsTheLoadServesAsFastAsTheBestFixedOne) {
  const auto run = [&](const std::string& offload, int num_requests) {
    const SimulationResult result = Serve("3GB", offload, Alike(num_requests, 160, 330));
    return std::chrono::duration<double>(result.end.time_since_epoch()).count();
  };
  const double none = run("", 200);
  double best = none;
  for (const double expansion : {1.4, 1.7, 2.0, 2.5, 3.0})
    best = std::min(best, run(fmt::format(", kv_offload: {{expansion: {}}}", expansion), 200));
  EXPECT_LT(best, 0.8 * none);
  EXPECT_LT(run(kAdaptive, 200), 1.05 * best);
  EXPECT_EQ(run(kAdaptive, 2), run("", 2)) << "where all find room nothing comes and goes";
}

}  // namespace
}  // namespace lamina::testing
