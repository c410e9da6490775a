// Memory nodes of unequal speed: routes follow what is measured, so that they end together.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

using std::chrono::seconds;

NodeConfig Node(const std::string& name, NodeRole role, const std::string& device,
                int64_t memory_bytes = 0) {
  NodeConfig node;
  node.name = name;
  node.role = role;
  node.device = "modelled:" + device;
  node.memory_bytes = memory_bytes;
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

struct Skew {
  std::string catalog;  // compute, fast and slow
  Deployment deployment;
  size_t num_sequences = 0, prompt_tokens = 0, answer_tokens = 0;
};

// The median over five stretches of the second half of the answers: the machine may be busy with
// something else during one of them.
double SlowOverFast(const Skew& skew) {
  const TemporaryFolder folder;
  const std::string catalog = folder / "devices.yaml";
  std::ofstream(catalog) << "version: 1\ndevices:\n" << skew.catalog;
  LocalClusterOptions options;
  options.nodes = {Node("c0", NodeRole::kCompute, "compute"),
                   Node("m0", NodeRole::kMemory, "fast", skew.deployment.memory_bytes),
                   Node("m1", NodeRole::kMemory, "slow", skew.deployment.memory_bytes)};
  options.device_catalog = catalog;
  options.bin_dir = BinPath();
  const Result<std::unique_ptr<LocalCluster>> cluster = LocalCluster::Create(options);
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  if (!cluster.ok()) return 0;
  const Result<std::unique_ptr<Serving>> serving =
      Serving::Connect((*cluster)->config(), skew.deployment);
  EXPECT_TRUE(serving.ok()) << serving.status();
  if (!serving.ok()) return 0;
  Engine& engine = *(*serving)->engine;

  const std::vector<Collector> collectors(skew.num_sequences);
  for (const Collector& collector : collectors) {
    GenerateRequest request = GreedyRequest(std::vector<TokenId>(skew.prompt_tokens, 100),
                                            static_cast<int64_t>(skew.answer_tokens));
    request.ignore_eos = true;
    EXPECT_TRUE(engine.Submit(std::move(request), collector.sink()).ok());
  }
  const auto await_tenths = [&](size_t tenths) {
    EXPECT_TRUE(collectors.back().WaitForTokens(skew.answer_tokens * tenths / 10,
                                                Deadline::After(seconds(60))));
    return AttentionUs(engine);
  };
  std::vector<double> slow_over_fast;
  std::map<std::string, int64_t> before = await_tenths(4);
  for (size_t tenths = 5; tenths < 10; ++tenths) {
    std::map<std::string, int64_t> after = await_tenths(tenths);
    slow_over_fast.push_back(static_cast<double>(after["m1"] - before["m1"]) /
                             static_cast<double>(after["m0"] - before["m0"]));
    before = after;
  }
  for (const Collector& collector : collectors)
    EXPECT_TRUE(collector.Wait(Deadline::After(seconds(60))));
  std::nth_element(slow_over_fast.begin(), slow_over_fast.begin() + 2, slow_over_fast.end());
  ::testing::Test::RecordProperty("slow_over_fast", std::to_string(slow_over_fast[2]));
  return slow_over_fast[2];
}

TEST(Skew, ASlowNodeGetsFewerTokens) {
  Skew skew{
      "- {name: compute, bf16_tflops: 10, memory: 1GB, bandwidth_gb_per_s: 1000, mfu: [{batch: 1, "
      "mfu: 0.5}], source: made up}\n"
      "- {name: fast, bf16_tflops: 10, memory: 1GB, bandwidth_gb_per_s: 0.25, mfu: [{batch: 1, "
      "mfu: 0.5}], source: made up}\n"
      "- {name: slow, bf16_tflops: 10, memory: 1GB, bandwidth_gb_per_s: 0.125, mfu: [{batch: 1, "
      "mfu: 0.5}], source: made up}\n",
      {},
      8,
      60,
      400};
  skew.deployment.spread_tokens = 16;
  skew.deployment.memory_bytes = 64'000'000;
  EXPECT_NEAR(SlowOverFast(skew), 1, 0.1) << "half the speed: evenly spread it would be 2";
}

// LLaMA-13B on A100s, of which one has half the bandwidth: attention of a layer takes some 100 us.
TEST(Skew, AlsoWhereAttentionTakesMicroseconds) {
  const std::string a100 =
      ", bf16_tflops: 312, memory: 40GB, mfu: [{batch: 1, mfu: 0.4}], source: made up, "
      "bandwidth_gb_per_s: ";
  Skew skew{"- {name: compute" + a100 + "1250}\n- {name: fast" + a100 + "1250}\n- {name: slow" +
                a100 + "625}\n",
            {},
            32,
            300,
            200};
  skew.deployment.model = SourcePath("/configs/models/llama-13b");
  skew.deployment.load_format = LoadFormat::kDummy;
  skew.deployment.spread_tokens = 32;
  skew.deployment.memory_bytes = 30'000'000'000;
  skew.deployment.max_num_batched_tokens = 1024;
  EXPECT_NEAR(SlowOverFast(skew), 1, 0.1) << "half the speed: evenly spread it would be 2";
}

}  // namespace
}  // namespace lamina::testing
