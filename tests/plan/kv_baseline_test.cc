// How other systems keep more of a KV cache than memory has room for, against schedules that are
// worked out here.
#include "plan/simulate/kv_baseline.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/plan/simulate_fixture.h"

namespace lamina::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kLayerToken = 2 * 2 * kHidden;  // bytes
constexpr double kIn = 10e9, kOut = 5e9;         // bytes per second over the link

// A compute node that keeps its KV itself, bound by arithmetic alone, with a link to its host.
class KvBaselineTest : public SimulateTest {
 protected:
  KvBaselineTest() {
    WriteFile(folder_ / "linked.yaml",
              "version: 1\ndevices:\n"
              "- {name: Linked, bf16_tflops: 100, memory: 80GB, bandwidth_gb_per_s: 1000000000, "
              "host_link_gb_per_s: 10, host_link_back_gb_per_s: 5, host_link_95_percent: 19MB, "
              "mfu: [{batch: 1, mfu: 1}], source: made up}\n"
              "- {name: Alone, bf16_tflops: 100, memory: 80GB, bandwidth_gb_per_s: 1000000000, "
              "mfu: [{batch: 1, mfu: 1}], source: made up}\n");
  }

  // Room for so many tokens while all layers are in memory.
  Result<ClusterModel> Load(const std::string& baseline, int64_t tokens,
                            const std::string& more = "", const std::string& device = "Linked") {
    WriteFile(folder_ / "kv.yaml",
              fmt::format("version: 1\ncluster: {{device_catalog: linked.yaml}}\nnodes:\n- {{name: "
                          "c0, role: compute, port: 7000, device: \"modelled:{}\", memory: {}{}}}\n"
                          "model: {{path: {}}}\n",
                          device, static_cast<int64_t>(kLayerToken) * kLayers * tokens, more,
                          SourcePath("/configs/models/llama-13b")));
    ClusterChanges changes;
    if (!baseline.empty()) changes.kv_baseline = *KvBaseline::Parse(baseline);
    return ClusterModel::Load(folder_ / "kv.yaml", changes);
  }

  // One request of 100 tokens and two steps that decode.
  double TwoSteps(const std::string& baseline, const std::vector<std::string>& slow_links = {}) {
    const Result<ClusterModel> cluster = Load(baseline, 200);
    EXPECT_TRUE(cluster.ok()) << cluster.status();
    SimulationOptions options;
    options.prompts_appear = true;
    for (const std::string& text : slow_links)
      options.changes.push_back(*NodeChange::ParseSlowLink(text));
    return Run(*cluster, Alike(1, 100, 3), options).requests[0].e2e_s();
  }
};

// Attention of rows that attend to so many tokens together, one layer.
double ComputedAttention(double tokens) { return 4 * kHidden * tokens / kFlops; }
double DecodeStep(double rows, double tokens) { return StepTime(rows, ComputedAttention(tokens)); }

// Two sequences of 20 + 60 tokens and room for 100. Each has 50 computed when there is no room for
// another token; the second one goes, and comes back when the first has ended.
TEST_F(KvBaselineTest, ASwappedSequenceIsCopiedOutAndBack) {
  const double prompts = [] {
    double seconds = 2 * kLayers * PromptAttentionTime(20);
    for (int k = 0; k <= kLayers; ++k) seconds += SliceTime(k, 40, 2);
    return seconds;
  }();
  double together = 0, alone = 0;
  for (int tokens = 21; tokens <= 50; ++tokens) together += DecodeStep(2, 2 * tokens);
  for (int tokens = 51; tokens <= 79; ++tokens) alone += DecodeStep(1, tokens);
  const double copied = kLayers * kLayerToken * 50;

  const SimulationResult swap = Run(*Load("swap", 100), Alike(2, 20, 60));
  EXPECT_EQ(swap.num_preemptions, 1);
  EXPECT_NEAR(swap.requests[0].e2e_s(), prompts + together + copied / kOut + alone, 1e-5)
      << "it waits for the copy out";
  EXPECT_NEAR(swap.requests[1].e2e_s(),
              prompts + together + copied / kOut + alone + copied / kIn + alone, 1e-5);
  EXPECT_EQ(swap.used_tokens_at_end, 0);

  // Without: its 51 tokens are computed again.
  double again = kLayers * PromptAttentionTime(51);
  for (int k = 0; k <= kLayers; ++k) again += SliceTime(k, 51, 1);
  const double rest = alone - DecodeStep(1, 51);
  const SimulationResult none = Run(*Load("", 100), Alike(2, 20, 60));
  EXPECT_EQ(none.num_preemptions, 1);
  EXPECT_NEAR(none.requests[1].e2e_s(), prompts + together + alone + again + rest, 1e-5);

  // Pages of 16 tokens: K, and V, of a layer have 163,840 bytes, and a copy costs as much as 10^6.
  const double share = 163840. / (163840 + 1e6);
  const SimulationResult pages = Run(*Load("swap:16", 100), Alike(2, 20, 60));
  EXPECT_NEAR(pages.end.time_since_epoch() / std::chrono::duration<double>(1),
              prompts + together + 2 * alone + (copied / kOut + copied / kIn) / share, 1e-5);
}

TEST_F(KvBaselineTest, TheTailIsReadOverTheLink) {
  const Result<ClusterModel> cluster = Load("tail:2", 200);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->kv_nodes[0].capacity_tokens, 400) << "20 of 40 layers";
  const auto step = [](double tokens, double link) {
    // K and V of all tokens, and the row's own q, output, k and v.
    const double far = (kLayerToken * tokens + 8 * kHidden) / link;
    return DecodeStep(1, tokens) + 20 * (far - ComputedAttention(tokens));
  };
  EXPECT_NEAR(TwoSteps("tail:2"), step(101, kIn) + step(102, kIn), 1e-6);
  EXPECT_NEAR(TwoSteps("tail:2", {"c0:3@0"}), step(101, kIn / 3) + step(102, kIn / 3), 1e-6)
      << "others use the link";
  EXPECT_EQ(TwoSteps("tail:2", {"c0:3@10s"}), TwoSteps("tail:2")) << "later";
}

TEST_F(KvBaselineTest, APartOfEveryLayerComesWhenItIsDue) {
  EXPECT_EQ(Load("static:1.25", 200)->kv_nodes[0].capacity_tokens, 250);
  const double portion = (1 - 1 / 1.25) * 40 / 39;
  const auto step = [&](double tokens) {
    return DecodeStep(1, tokens) +
           kLayers * portion * kLayerToken * ((tokens - 1) / kIn + 1 / kOut);
  };
  EXPECT_NEAR(TwoSteps("static:1.25"), step(101) + step(102), 1e-6);
}

// What comes is the bottleneck here: 43 us for a layer, which computes for 6 us.
TEST_F(KvBaselineTest, OrWhileTheLayerBeforeComputes) {
  EXPECT_EQ(Load("static-ahead:1.25", 200)->kv_nodes[0].capacity_tokens, 250);
  const double portion = (1 - 1 / 1.25) * 40 / 38;
  const auto step = [&](double tokens) {
    const double come = portion * kLayerToken * (tokens - 1) / kIn;
    return kLayers * come + ComputedAttention(tokens) + SliceTime(kLayers, 1, 1);
  };
  EXPECT_NEAR(TwoSteps("static-ahead:1.25"), step(101) + step(102), 1e-6);
  EXPECT_LT(TwoSteps("static-ahead:1.25"), TwoSteps("static:1.25"));
}

TEST_F(KvBaselineTest, SaysWhatCannotBe) {
  for (const char* wrong : {"", "swap:", "swap:0", "swap:x", "tail", "tail:", "tail:1", "tail:nan",
                            "tail:2x", "static", "static:-2", "static-ahead:1e9", "lru:2"})
    EXPECT_THAT(KvBaseline::Parse(wrong).status().message(), HasSubstr("expected swap")) << wrong;
  EXPECT_EQ(KvBaseline::Parse("swap:16")->page_tokens, 16);
  EXPECT_EQ(KvBaseline::Parse("tail:1.5")->expansion, 1.5);
  EXPECT_THAT(Load("static-ahead:30", 200).status().message(),
              HasSubstr("leaves less than 2 of 40 layers"));
  EXPECT_THAT(Load("tail:2", 200, "", "Alone").status().message(), HasSubstr("host_link_gb_per_s"));
  EXPECT_THAT(Load("swap", 200, ", kv_offload: {expansion: 2}").status().message(),
              HasSubstr("in place of kv_offload, which node 'c0' has"));
  ClusterChanges changes;
  changes.kv_baseline.kind = KvBaseline::Kind::kSwap;
  Cluster(1, 1, "1GB");
  EXPECT_THAT(ClusterModel::Load(folder_ / "cluster.yaml", changes).status().message(),
              HasSubstr("there are memory nodes"));
}

// Half of the layers take turns, and a step waits for all that come: 10 GB/s in, 5 GB/s out.
TEST_F(KvBaselineTest, WhatIsWrittenThroughNeedNotGo) {
  const auto tpot = [&](bool write_through) {
    ClusterModel cluster = *Load("", 200, ", kv_offload: {expansion: 2}");
    cluster.kv_write_through = write_through;
    return Run(cluster, Alike(1, 1, 40)).requests[0].tpot_s();
  };
  // 400 tokens, and twenty layers have to come in every step.
  const double layer = 400 * kLayerToken;
  EXPECT_GT(tpot(false), 20 * layer / kOut);
  EXPECT_GT(tpot(true), 0.95 * 20 * layer / kIn);
  EXPECT_LT(tpot(true), 1.15 * 20 * layer / kIn);
  ClusterChanges changes;
  changes.kv_write_through = true;
  ASSERT_TRUE(Load("", 200).ok());
  EXPECT_THAT(ClusterModel::Load(folder_ / "kv.yaml", changes).status().message(),
              HasSubstr("node 'c0' needs kv_offload.expansion"));
}

// A preempted sequence that is swapped by a busy node never loses a token.
TEST_F(KvBaselineTest, EveryRequestEndsWithAllItsTokens) {
  for (const char* baseline : {"swap", "swap:16", "tail:1.5", "static:1.5", "static-ahead:1.5"}) {
    const RequestTrace workload = Mixed(60, 3, 0.001);
    const SimulationResult result = Run(*Load(baseline, 1500), workload);
    for (size_t i = 0; i < workload.requests.size(); ++i) {
      EXPECT_EQ(result.requests[i].outcome, RequestTimes::Outcome::kDone) << baseline;
      EXPECT_EQ(result.requests[i].output_tokens, workload.requests[i].output_tokens);
    }
    EXPECT_EQ(result.used_tokens_at_end, 0);
    EXPECT_GT(result.num_preemptions, 0) << baseline;
    EXPECT_EQ(Lines(Run(*Load(baseline, 1500), workload)), Lines(result));
  }
}

}  // namespace
}  // namespace lamina::testing
