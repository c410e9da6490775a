// The shipped model's golden continuations, made with PyTorch: token for token and log-probability
// for log-probability, in every set-up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "manager/resolve_config.h"
#include "tests/support/expect_golden.h"
#include "tests/support/serving.h"

namespace lamina::testing {
namespace golden_test {

class GoldenTest : public ::testing::TestWithParam<Deployment> {
 protected:
  static void Expect(Engine& engine, const std::vector<GoldenPrompt>& golden) {
    const double tolerance = GetParam().wire_dtype == DType::kF16
                                 ? kRoundedTolerance
                                 : LogprobTolerance(GetParam().kv_dtype);
    ExpectGolden(engine, golden, std::chrono::seconds(60), tolerance);
  }

 private:
  static constexpr double kRoundedTolerance = 1e-2;  // the golden run rounds no query and no output
};

TEST_P(GoldenTest, EachPromptAloneAndAllAtOnce) {
  const std::vector<GoldenPrompt> golden = GoldenPrompts(GetParam().kv_dtype);
  ASSERT_EQ(golden.size(), GetParam().kv_dtype == DType::kF8         ? 16u
                           : GetParam().kv_dtype == DType::kI8Scaled ? 16u
                           : GetParam().kv_dtype == DType::kF8Scaled ? 15u
                                                                     : 19u);
  Result<std::unique_ptr<Serving>> serving = Serving::Create(GetParam());
  ASSERT_TRUE(serving.ok()) << serving.status();
  Engine& engine = *(*serving)->engine;
  for (const GoldenPrompt& prompt : golden) Expect(engine, {prompt});
  Expect(engine, golden);
  EXPECT_EQ(AwaitNoTokens(engine, Deadline::After(std::chrono::seconds(10))), "");
}

// Little room: requests are preempted and recomputed, and chunks of prompts are short. The text
// must not change.
TEST_P(GoldenTest, UnderPreemptionAndShortChunks) {
  const std::vector<GoldenPrompt> golden = GoldenPrompts(GetParam().kv_dtype);
  Deployment deployment = GetParam();
  const ModelConfig model = *ModelConfig::Load(TinyStoriesDir());
  const int64_t bytes_per_token = KvBytesPerToken(model, deployment.kv_dtype);
  const int num_shares = deployment.spread_tokens > 0 ? deployment.num_memory_nodes
                                                      : std::max(deployment.kv_head_parallel,
                                                                 deployment.tensor_parallel_size);
  deployment.memory_bytes = bytes_per_token * 240 / num_shares;  // of a sequence
  // Layers that lie outside would make room for more.
  const OffloadOptions& outside =
      deployment.num_memory_nodes > 0 ? deployment.memory_offload : deployment.kv_offload;
  const Result<int64_t> tokens =
      TokensInMemory(model.num_layers, 1000 / model.num_layers, outside, 240 * 1000);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  deployment.memory_bytes = deployment.memory_bytes * 240 / *tokens;
  deployment.max_num_seqs = 8;
  deployment.max_num_batched_tokens = 11;
  Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
  ASSERT_TRUE(serving.ok()) << serving.status();
  Engine& engine = *(*serving)->engine;
  Expect(engine, golden);
  EXPECT_GT(engine.status().scheduler.num_preemptions, 0);
  EXPECT_EQ(AwaitNoTokens(engine, Deadline::After(std::chrono::seconds(10))), "");
}

// How memory nodes share attention: by kv_head (3 nodes share 4 unevenly), by token range, both.
struct Partition {
  int num_memory_nodes, kv_head_parallel;
  int64_t spread_tokens;
};

// golden_product_test.cc runs every combination of pipeline and partition, with all prompts at
// once. Here each of them stands once.
std::vector<Deployment> AllDeployments() {
  std::vector<Deployment> all;
  for (const DType kv_dtype : {DType::kF32, DType::kBF16}) {
    Deployment deployment;
    deployment.kv_dtype = kv_dtype;
    deployment.kind = "in-process";
    all.push_back(deployment);
    deployment.kind = "cluster";
    deployment.num_memory_nodes = 0;
    all.push_back(deployment);
    for (const TransportKind transport : {TransportKind::kTcp, TransportKind::kShm}) {
      for (const int num_memory_nodes : {1, 2, 3}) {
        deployment.transport = transport;
        deployment.num_memory_nodes = num_memory_nodes;
        all.push_back(deployment);
      }
    }
  }
  Deployment threads;  // several of them run the kernels
  threads.compute_threads = 2;
  all.push_back(threads);
  threads.num_memory_nodes = 0;
  all.push_back(threads);
  threads.kind = "in-process";
  all.push_back(threads);
  for (const DType kv_dtype : {DType::kF8, DType::kI8Scaled, DType::kF8Scaled}) {
    Deployment small;  // K and V in 8 bits, in each way to share attention
    small.kv_dtype = kv_dtype;
    small.kind = "in-process";
    all.push_back(small);
    small.kind = "cluster";
    small.num_memory_nodes = 0;
    all.push_back(small);
    for (const TransportKind transport : {TransportKind::kTcp, TransportKind::kShm}) {
      small.transport = transport;
      for (const int num_memory_nodes : {1, 2}) {
        small.num_memory_nodes = num_memory_nodes;
        all.push_back(small);
      }
    }
    for (const Partition& partition : {Partition{3, 3, 0}, {2, 1, 16}, {4, 2, 16}}) {
      small.num_memory_nodes = partition.num_memory_nodes;
      small.kv_head_parallel = partition.kv_head_parallel;
      small.spread_tokens = partition.spread_tokens;
      small.overlap = partition.num_memory_nodes == 4 ? Switch::kOn : Switch::kOff;
      all.push_back(small);
    }
    if (!HasScales(kv_dtype)) continue;
    Deployment layers;  // K, V and their scales on a disk
    layers.kv_dtype = kv_dtype;
    layers.num_batches = 1;
    layers.memory_bytes = int64_t{1} << 20;
    layers.memory_offload = {.interval = 1, .folder = "/var/tmp", .buffers = 1, .poison = true};
    all.push_back(layers);
    layers.memory_offload = {.expansion = 2, .is_auto = true, .folder = "/var/tmp", .poison = true};
    all.push_back(layers);
    layers.kv_offload = std::exchange(layers.memory_offload, {});
    layers.num_memory_nodes = 0;
    all.push_back(layers);
  }
  Deployment shared;  // attention
  for (const Partition& partition : {Partition{2, 2, 0},
                                     {3, 3, 0},
                                     {4, 4, 0},
                                     {4, 2, 0},
                                     {2, 1, 16},
                                     {3, 1, 1},
                                     {4, 1, 16},
                                     {4, 2, 16}}) {
    shared.num_memory_nodes = partition.num_memory_nodes;
    shared.kv_head_parallel = partition.kv_head_parallel;
    shared.spread_tokens = partition.spread_tokens;
    shared.num_batches = shared.num_batches == 1 ? 3 : 1;
    shared.kv_dtype = partition.num_memory_nodes == 4 ? DType::kBF16 : DType::kF32;
    all.push_back(shared);
  }
  Deployment in_flight;  // several batches
  in_flight.num_batches = 2;
  for (const int num_memory_nodes : {0, 2}) {
    in_flight.num_memory_nodes = num_memory_nodes;
    all.push_back(in_flight);
  }
  in_flight.num_batches = 0;
  for (const PipelineMode pipeline :
       {PipelineMode::kNone, PipelineMode::kFixed, PipelineMode::kRotational}) {
    in_flight.pipeline = pipeline;
    for (const int num_compute_nodes : {2, 3}) {
      in_flight.num_compute_nodes = num_compute_nodes;
      in_flight.num_memory_nodes = num_compute_nodes == 2 ? 2 : 1;
      in_flight.kv_dtype = num_compute_nodes == 2 ? DType::kBF16 : DType::kF32;
      all.push_back(in_flight);
    }
  }
  Deployment stages;  // each compute node has some of the layers
  for (const int num_stages : {2, 3}) {
    stages.pipeline_parallel_size = num_stages;
    for (const int num_memory_nodes : {1, 2}) {
      stages.num_memory_nodes = num_memory_nodes;
      stages.transport = num_memory_nodes == 1 ? TransportKind::kTcp : TransportKind::kShm;
      stages.kv_dtype = num_memory_nodes == 1 ? DType::kF32 : DType::kBF16;
      all.push_back(stages);
    }
  }
  stages.pipeline = PipelineMode::kFixed;
  all.push_back(stages);
  stages.kv_head_parallel = 2;
  stages.overlap = Switch::kOn;
  all.push_back(stages);
  Deployment ranks;  // compute nodes run each layer together
  ranks.tensor_parallel_size = 2;
  for (const DType kv_dtype : {DType::kF32, DType::kBF16}) {
    ranks.kv_dtype = kv_dtype;
    for (const TransportKind transport : {TransportKind::kTcp, TransportKind::kShm}) {
      ranks.transport = transport;
      all.push_back(ranks);
    }
    ranks.pipeline_parallel_size = 2;
    all.push_back(ranks);
    ranks.pipeline_parallel_size = 1;
  }
  ranks.pipeline = PipelineMode::kFixed;
  ranks.num_batches = 3;
  all.push_back(ranks);
  ranks.overlap = Switch::kOn;
  ranks.num_memory_nodes = 4;
  ranks.spread_tokens = 16;
  all.push_back(ranks);
  ranks.spread_tokens = 0;
  ranks.tensor_parallel_size = 4;
  all.push_back(ranks);
  Deployment rounded;  // what crosses the wire
  rounded.wire_dtype = DType::kF16;
  for (const TransportKind transport : {TransportKind::kTcp, TransportKind::kShm}) {
    rounded.transport = transport;
    all.push_back(rounded);
  }
  rounded.spread_tokens = 16;
  all.push_back(rounded);
  Deployment overlapped;  // q before k and v
  overlapped.overlap = Switch::kOn;
  for (const DType kv_dtype : {DType::kF32, DType::kBF16}) {
    overlapped.kv_dtype = kv_dtype;
    for (const TransportKind transport : {TransportKind::kTcp, TransportKind::kShm}) {
      overlapped.transport = transport;
      overlapped.num_batches = transport == TransportKind::kShm ? 3 : 1;
      all.push_back(overlapped);
    }
  }
  overlapped.modelled_latency = microseconds(50);
  all.push_back(overlapped);
  overlapped.modelled_latency = {};
  overlapped.num_memory_nodes = 4;
  overlapped.kv_head_parallel = 2;
  overlapped.spread_tokens = 16;
  all.push_back(overlapped);
  overlapped.num_compute_nodes = 2;
  overlapped.pipeline = PipelineMode::kRotational;
  all.push_back(overlapped);
  Deployment outside;  // weights on a disk
  for (const int interval : {1, 2}) {
    outside.offload = {.interval = interval, .folder = "/var/tmp", .buffers = 1};
    outside.num_batches = 1;
    outside.num_memory_nodes = interval - 1;
    all.push_back(outside);
  }
  outside.offload.interval = 1;
  outside.offload.buffers = 2;
  outside.num_batches = 3;
  outside.overlap = Switch::kOn;
  all.push_back(outside);
  outside.overlap = Switch::kOff;
  outside.num_memory_nodes = 2;
  outside.tensor_parallel_size = 2;
  all.push_back(outside);
  Deployment chosen;  // intervals that change as sequences come and go
  chosen.offload = {.is_auto = true, .folder = "/var/tmp", .buffers = 1, .poison = true};
  for (const double rows : {1, 100}) {
    chosen.step_times.push_back({false, 1, rows, 100, 0.01 * rows});
    chosen.step_times.push_back({false, 2, rows, 100, 0.005 * rows});
    chosen.step_times.push_back({false, 0, rows, 100, 0.0001 * rows});
  }
  chosen.slo.tpot = milliseconds(60);
  all.push_back(chosen);
  chosen.num_memory_nodes = 0;
  all.push_back(chosen);
  Deployment layers;  // K and V of layers on a disk
  layers.memory_offload = {.interval = 1, .folder = "/var/tmp", .buffers = 1, .poison = true};
  layers.memory_bytes = int64_t{2} << 20;
  layers.num_batches = 1;
  all.push_back(layers);
  layers.memory_offload = {.expansion = 2, .folder = "/var/tmp", .poison = true};
  all.push_back(layers);
  layers.kv_offload = std::exchange(layers.memory_offload, {});
  layers.num_memory_nodes = 0;
  all.push_back(layers);
  layers.kv_offload = {
      .expansion = 2, .is_auto = true, .folder = "/var/tmp", .poison = true};  // of few tokens
  all.push_back(layers);
  layers.memory_offload = std::exchange(layers.kv_offload, {});
  layers.num_memory_nodes = 2;
  layers.num_batches = 2;
  all.push_back(layers);
  layers.num_batches = 1;
  layers.memory_offload = {.interval = 1, .folder = "/var/tmp", .buffers = 2, .poison = true};
  layers.num_memory_nodes = 1;
  layers.kv_dtype = DType::kF32;
  layers.num_batches = 3;
  layers.overlap = Switch::kOn;
  layers.offload = {.interval = 2, .folder = "/var/tmp", .buffers = 1};
  all.push_back(layers);
  Deployment several;
  several.num_compute_nodes = 2;
  all.push_back(several);
  several.pipeline = PipelineMode::kRotational;
  several.transport = TransportKind::kTcp;
  all.push_back(several);
  several.num_memory_nodes = 4;
  several.kv_head_parallel = 2;
  several.spread_tokens = 16;
  all.push_back(several);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Deployments, GoldenTest, ::testing::ValuesIn(AllDeployments()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace golden_test
}  // namespace lamina::testing
