// Memory nodes of unequal speed: routes follow what is measured, so that they end together.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <vector>

#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

using std::chrono::seconds;

NodeConfig Node(const std::string& name, NodeRole role, const std::string& device) {
  NodeConfig node;
  node.name = name;
  node.role = role;
  node.device = "modelled:" + device;
  node.memory_bytes = role == NodeRole::kMemory ? 64'000'000 : 0;
  return node;
}

// Microseconds of attention so far, by node.
std::map<std::string, int64_t> AttentionUs(Engine& engine) {
  const auto last_answers = [&] {
    std::map<std::string, int64_t> us;
    for (const NodeStatus& node : engine.status().nodes) us[node.name] = node.attention_us;
    return us;
  };
  std::map<std::string, int64_t> before = last_answers(), now;  // and asks anew
  EXPECT_TRUE(AwaitTrue(
      [&] {
        now = last_answers();
        return now["m0"] != before["m0"] && now["m1"] != before["m1"];
      },
      Deadline::After(seconds(10))));
  return now;
}

TEST(Skew, ASlowNodeGetsFewerTokens) {
  const TemporaryFolder folder;
  const std::string catalog = folder / "devices.yaml";
  std::ofstream(catalog)
      << "version: 1\n"
         "devices:\n"
         "- {name: compute, bf16_tflops: 10, memory: 1GB, bandwidth_gb_per_s: 1000, mfu: [{batch: 1, mfu: 0.5}], source: made up}\n"
         "- {name: fast, bf16_tflops: 10, memory: 1GB, bandwidth_gb_per_s: 0.25, mfu: [{batch: 1, mfu: 0.5}], source: made up}\n"
         "- {name: slow, bf16_tflops: 10, memory: 1GB, bandwidth_gb_per_s: 0.125, mfu: [{batch: 1, mfu: 0.5}], source: made up}\n";
  LocalClusterOptions options;
  options.nodes = {Node("c0", NodeRole::kCompute, "compute"), Node("m0", NodeRole::kMemory, "fast"), Node("m1", NodeRole::kMemory, "slow")};
  options.device_catalog = catalog;
  options.bin_dir = LAMINA_BIN_DIR;
  const Result<std::unique_ptr<LocalCluster>> cluster = LocalCluster::Create(options);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  Deployment deployment;
  deployment.spread_tokens = 16;
  const Result<std::unique_ptr<Serving>> serving = Serving::Connect((*cluster)->config(), deployment);
  ASSERT_TRUE(serving.ok()) << serving.status();
  Engine& engine = *(*serving)->engine;

  const std::vector<Collector> collectors(8);
  for (const Collector& collector : collectors) {
    GenerateRequest request = GreedyRequest(std::vector<TokenId>(60, 100), 400);
    request.ignore_eos = true;
    ASSERT_TRUE(engine.Submit(std::move(request), collector.sink()).ok());
  }
  // Over several stretches of the run: the machine may be busy with something else during one of them.
  std::vector<double> slow_over_fast;
  ASSERT_TRUE(collectors[7].WaitForTokens(180, Deadline::After(seconds(60))));
  std::map<std::string, int64_t> before = AttentionUs(engine);
  for (const size_t tokens : {220u, 260u, 300u, 340u, 380u}) {
    ASSERT_TRUE(collectors[7].WaitForTokens(tokens, Deadline::After(seconds(60))));
    std::map<std::string, int64_t> after = AttentionUs(engine);
    ASSERT_GT(after["m0"], before["m0"]);
    slow_over_fast.push_back(static_cast<double>(after["m1"] - before["m1"]) / static_cast<double>(after["m0"] - before["m0"]));
    before = after;
  }
  std::nth_element(slow_over_fast.begin(), slow_over_fast.begin() + 2, slow_over_fast.end());
  RecordProperty("slow_over_fast", std::to_string(slow_over_fast[2]));
  EXPECT_NEAR(slow_over_fast[2], 1, 0.1) << "half the speed: evenly spread it would be 2";
  for (const Collector& collector : collectors) EXPECT_TRUE(collector.Wait(Deadline::After(seconds(60))));
}

}  // namespace
}  // namespace lamina::testing
