// Plans as cluster files: what reads them takes them, and the simulator gives what was planned.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "manager/cluster_config.h"
#include "plan/cluster_file.h"
#include "plan/planner.h"
#include "plan/simulate/simulation.h"
#include "plan/workload/workload.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;

const std::string kModels = SourcePath("/configs/models/");
const std::string kShipped = SourcePath("/configs/devices-2026.yaml");

// Every kind of shape gives a file that the reader of cluster files takes.
TEST(ClusterFile, IsWhatClusterCommandsRead) {
  const TemporaryFolder folder;
  struct Case {
    ClusterShape shape;
    Schedule schedule;
    PipelineMode pipeline;
  };
  const Case cases[] = {{{"H100", 1, 1, "RTX3090", 3}, {1, 40, false}, PipelineMode::kNone},
                        {{"H100", 1, 1, "RTX3090", 3}, {2, 40, false}, PipelineMode::kFixed},
                        {{"H100", 1, 1, "RTX3090", 3}, {1, 900, false}, PipelineMode::kNone},
                        {{"H100", 3, 1, "RTX3090", 2}, {4, 10, true}, PipelineMode::kRotational},
                        {{"H100", 1, 2, "RTX3090", 4}, {2, 700, false}, PipelineMode::kFixed}};
  for (const Case& c : cases) {
    Prediction prediction;
    prediction.shape = c.shape;
    prediction.schedule = c.schedule;
    prediction.admitted_sequences = c.schedule.sequences() + 5;
    ClusterFile file;
    file.model_dir = std::string(kModels) + "llama-13b";
    file.catalog = kShipped;
    file.compute_price = 2.69;
    file.memory_price = 0.22;
    file.compute_nic_gb_per_s = 50;
    file.memory_nic_gb_per_s = 25;
    file.memory_bytes = 21'600'000'000;
    const Result<std::string> yaml = ToClusterYaml(prediction, file);
    ASSERT_TRUE(yaml.ok()) << yaml.status();
    std::ofstream(folder / "c.yaml") << *yaml;
    const Result<ClusterConfig> config = ClusterConfig::Load(folder / "c.yaml");
    ASSERT_TRUE(config.ok()) << config.status() << *yaml;
    EXPECT_EQ(config->nodes.size(),
              static_cast<size_t>(c.shape.num_compute() + c.shape.num_memory));
    EXPECT_EQ(config->pipeline, c.pipeline);
    EXPECT_EQ(config->num_batches, c.schedule.num_batches);
    EXPECT_EQ(config->tensor_parallel_size, c.shape.num_ranks);
    EXPECT_EQ(config->max_num_seqs, c.schedule.sequences() + 5);
    EXPECT_GE(config->max_num_batched_tokens, c.schedule.rows + 5 + 512)
        << "a step that decodes all its rows has room for prompts";
    EXPECT_EQ(config->modelled_gb_per_s, 25) << "the slower";
    EXPECT_EQ(config->modelled_latency, std::chrono::microseconds(33));
    EXPECT_DOUBLE_EQ(config->nodes.back().price_per_hour, 0.22);
    EXPECT_EQ(config->slo, SloRule());
    file.options.tpot_seconds = 0.1;
    EXPECT_THAT(*ToClusterYaml(prediction, file), HasSubstr("\nslo: {tpot: 100000us}\n"));
    file.options.ttft_seconds = 2.5;
    std::ofstream(folder / "slo.yaml") << *ToClusterYaml(prediction, file);
    const Result<ClusterConfig> promising = ClusterConfig::Load(folder / "slo.yaml");
    ASSERT_TRUE(promising.ok()) << promising.status();
    EXPECT_EQ(promising->slo.ttft, milliseconds(2500));
    EXPECT_EQ(promising->slo.tpot, milliseconds(100));
  }
  Prediction ranks;
  ranks.shape = {"H100", 1, 2, "", 0};
  EXPECT_EQ(ToClusterYaml(ranks, {}).status().code(), StatusCode::kUnimplemented);
  ClusterFile instant;
  instant.options.latency_us = 0;
  Prediction apart;
  apart.shape = {"H100", 1, 1, "RTX3090", 3};
  EXPECT_EQ(ToClusterYaml(apart, instant).status().code(), StatusCode::kInvalidArgument)
      << "no cluster file has a network without latency";
}

// A profile is of whole layers, and the runtime refuses to let ranks run parts of them. So does the
// simulator.
TEST(ClusterFile, OfRanksWithAMeasuredProfileIsRefusedByTheSimulatorToo) {
  const TemporaryFolder folder;
  std::ofstream(folder / "p.csv")
      << "n_head,n_kv_head,n_embd,n_expanded_embd,num_tokens,num_tensor_parallel_workers,input_"
         "layernorm_ms,"
         "attn_pre_proj_ms,attn_rope_ms,attn_post_proj_ms,post_attention_layernorm_ms,mlp_up_proj_"
         "ms,mlp_act_ms,"
         "mlp_down_proj_ms,add_ms\n"
         "40,40,5120,13824,1,1,0.01,0.1,0.01,0.04,0.01,0.2,0.01,0.1,0.01\n"
         "40,40,5120,13824,1,2,0.01,0.05,0.01,0.02,0.01,0.1,0.01,0.05,0.01\n";
  std::ofstream(folder / "d.yaml") << "version: 1\ndevices:\n"
                                      "- {name: Cheap, bf16_tflops: 10, memory: 24GB, "
                                      "bandwidth_gb_per_s: 1000, network_gb_per_s: 10, "
                                      "mfu: [{batch: 1, mfu: 0.5}], source: made up}\n"
                                      "- {name: Measured, bf16_tflops: 100, memory: 40GB, "
                                      "bandwidth_gb_per_s: 2000, profile: p.csv, "
                                      "mfu: [{batch: 1, mfu: 0.5}], source: made up}\n";
  for (const int ranks : {1, 2}) {
    Prediction prediction;
    prediction.shape = {"Measured", 1, ranks, "Cheap", 2};
    prediction.schedule = {1, 4, false};
    prediction.admitted_sequences = 4;
    ClusterFile file;
    file.model_dir = std::string(kModels) + "llama-13b";
    file.catalog = folder / "d.yaml";
    file.compute_nic_gb_per_s = file.memory_nic_gb_per_s = 10;
    file.memory_bytes = 20'000'000'000;
    std::ofstream(folder / "c.yaml") << *ToClusterYaml(prediction, file);
    const Result<ClusterModel> cluster = ClusterModel::Load(folder / "c.yaml", {});
    EXPECT_EQ(cluster.ok(), ranks == 1) << cluster.status();
    if (ranks > 1) {
      EXPECT_THAT(cluster.status().message(), HasSubstr("is of whole layers"));
    }
  }
}

double MiddleTokensPerSecond(const SimulationResult& result) {
  const std::vector<UsageTimeline::Piece>& pieces = result.usage.pieces();
  double tokens = 0;
  for (size_t i = pieces.size() / 4; i < pieces.size() * 3 / 4; ++i) tokens += pieces[i].tokens;
  const double pieces_seconds = std::chrono::duration<double>(result.usage.piece_length()).count();
  return tokens / pieces_seconds / static_cast<double>(pieces.size() * 3 / 4 - pieces.size() / 4);
}

// Plan against simulator, whose scheduler admits, places, lets grow and preempts as the real one.
// What limits here is the KV cache.
struct PlannedAndSimulated {
  Prediction planned;
  double simulated_tokens_per_s = 0;
  int64_t num_preemptions = 0;
};

struct Served {
  std::string model = "llama-33b";
  int64_t input_tokens = 1000, output_tokens = 1000;
  int64_t memory_node_bytes = 21'600'000'000;
};

PlannedAndSimulated PlanAndSimulate(const ClusterShape& shape, const PlanOptions& options,
                                    const Served& served = {}) {
  const TemporaryFolder folder;
  const std::string model_dir = kModels + served.model;
  RequestTrace trace;
  trace.source = "made up";
  trace.requests.resize(600);
  for (TraceRequest& request : trace.requests) {
    request.input_tokens = served.input_tokens;
    request.output_tokens = served.output_tokens;
  }
  PlannedAndSimulated both;
  const DeviceCatalog catalog = *DeviceCatalog::Load(kShipped);
  both.planned =
      PredictShape(*ModelConfig::Load(model_dir), LoadOf(trace), catalog, shape, options).value();
  const double served_seconds =
      static_cast<double>(served.output_tokens) / both.planned.tokens_per_second;
  // Faster than they can be served, and not all at once.
  for (size_t i = 0; i < trace.requests.size(); ++i)
    trace.requests[i].arrival_seconds = 0.62 * served_seconds * static_cast<double>(i);
  ClusterFile file;
  file.model_dir = model_dir;
  file.catalog = kShipped;
  file.options = options;
  file.compute_nic_gb_per_s = NicGbPerS(*catalog.Find(shape.compute), options);
  if (!shape.homogeneous())
    file.memory_nic_gb_per_s = NicGbPerS(*catalog.Find(shape.memory), options);
  file.memory_bytes = served.memory_node_bytes;
  std::ofstream(folder / "c.yaml") << *ToClusterYaml(both.planned, file);
  const Result<ClusterModel> cluster = ClusterModel::Load(folder / "c.yaml", {});
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->config.max_num_seqs, both.planned.schedule.sequences());
  SimulationOptions simulation;
  simulation.prompts_appear = !options.prefill;
  const Result<SimulationResult> result = Simulate(*cluster, trace, simulation);
  EXPECT_TRUE(result.ok()) << result.status();
  both.simulated_tokens_per_s = MiddleTokensPerSecond(*result);
  both.num_preemptions = result->num_preemptions;
  return both;
}

TEST(ClusterFile, GivesInTheSimulatorWhatWasPlanned) {
  PlanOptions options;
  options.prefill = false;
  const PlannedAndSimulated both = PlanAndSimulate({"H100", 1, 1, "RTX3090", 8}, options);
  EXPECT_NEAR(both.planned.tokens_per_second / both.simulated_tokens_per_s, 1, 0.03);
  EXPECT_LT(both.num_preemptions, 30) << "of 600 requests";
}

// One device has the weights and the KV cache, 46 GB of it.
TEST(ClusterFile, OfADeviceWithoutMemoryNodesGivesInTheSimulatorWhatWasPlanned) {
  PlanOptions options;
  options.prefill = false;
  const Served served{"llama-13b", 500, 500, 45'970'000'000};
  const PlannedAndSimulated both = PlanAndSimulate({"H100", 1, 1, "", 0}, options, served);
  EXPECT_NEAR(both.planned.tokens_per_second / both.simulated_tokens_per_s, 1, 0.03);
  EXPECT_LT(both.num_preemptions, 30) << "of 600 requests";
}

// Prompts are computed here: several batches are in flight, and each waits for the sums of its own
// prompts only. A plan pays prompts as steps of their own, which makes it slower.
TEST(ClusterFile, ThatComputesPromptsGivesInTheSimulatorAboutWhatWasPlanned) {
  struct Case {
    ClusterShape shape;
    Served served;
    double within;
  };
  const Case cases[] = {
      {{"L40S", 1, 2, "RTX3090", 6}, {"llama-13b", 300, 600, 21'600'000'000}, 0.1},
      {{"H100", 1, 1, "RTX3090", 8}, {}, 0.14},
      {{"H100", 1, 2, "H20", 2}, {"llama-3-70b", 2000, 300, 86'400'000'000}, 0.16},
  };
  for (const Case& c : cases) {
    const PlannedAndSimulated both = PlanAndSimulate(c.shape, {}, c.served);
    EXPECT_NEAR(both.planned.tokens_per_second / both.simulated_tokens_per_s, 1, c.within)
        << c.served.model << " on " << c.shape.text();
  }
}

// At a rate far below what the cluster can give, requests that come in bursts do not queue.
TEST(ClusterFile, ForARateServesBurstsWithoutQueues) {
  const TemporaryFolder folder;
  WorkloadOptions lengths;
  lengths.input_len = lengths.output_len = "300";
  lengths.request_rate = "6";
  lengths.num_prompts = 2000;
  const RequestTrace trace = *MakeWorkload(lengths, EstimatedTokens());
  PlanLoad load = LoadOf(trace);
  load.requests_per_second = 6;
  PlanOptions options;
  options.prefill = false;
  options.tpot_seconds = 0.05;
  options.ttft_seconds = 0.5;
  const ClusterShape shape{"A100-80G", 1, 1, "RTX3090", 2};
  const DeviceCatalog catalog = *DeviceCatalog::Load(kShipped);
  ClusterFile file;
  file.model_dir = std::string(kModels) + "llama-13b";
  file.catalog = kShipped;
  file.options = options;
  file.compute_nic_gb_per_s = file.memory_nic_gb_per_s = 25;
  const Prediction planned =
      PredictShape(*ModelConfig::Load(file.model_dir), load, catalog, shape, options).value();
  file.memory_bytes = 21'600'000'000;
  std::ofstream(folder / "c.yaml") << *ToClusterYaml(planned, file);
  const Result<ClusterModel> cluster = ClusterModel::Load(folder / "c.yaml", {});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  SimulationOptions simulation;
  simulation.prompts_appear = true;
  const Result<SimulationResult> result = Simulate(*cluster, trace, simulation);
  ASSERT_TRUE(result.ok()) << result.status();
  const auto late = std::count_if(result->requests.begin(), result->requests.end(),
                                  [](const RequestTimes& r) { return r.ttft_s() > 0.5; });
  EXPECT_LT(late, 20) << "of 2000: 99 % keep the limit";
}

// Ranks add up over the modelled network: at 33 us from node to node as lamina plans, and with a
// latency that makes sums most of a step.
TEST(ClusterFile, OfRanksGivesInTheSimulatorWhatWasPlanned) {
  PlanOptions options;
  options.prefill = false;
  for (const double latency_us : {33.0, 200.0}) {
    options.latency_us = latency_us;
    const PlannedAndSimulated both = PlanAndSimulate({"H100", 1, 2, "RTX3090", 8}, options);
    EXPECT_NEAR(both.planned.tokens_per_second / both.simulated_tokens_per_s, 1, 0.03)
        << latency_us << " us";
    EXPECT_GT(both.planned.network_seconds, (2 + 2) * 60 * latency_us * 1e-6)
        << "q, k, v; outputs; and two sums in each of 60 layers";
    EXPECT_LT(both.num_preemptions, 30) << "of 600 requests";
  }
}

}  // namespace
}  // namespace lamina
