// Hand-computed times, and the network bandwidths of the paper's Table 3, which follow from the
// linear layers' times.
#include "cost/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "model/tracer.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

const std::string kConfigs = SourcePath("/configs");

SlicedModel Load(const std::string& name) {
  const Result<ModelConfig> config = ModelConfig::Load(std::string(kConfigs) + "/models/" + name);
  EXPECT_TRUE(config.ok()) << config.status();
  return *SplitGraph(*TraceModel(*config));
}

DeviceSpec Device(const std::string& name) {
  return *DeviceCatalog::Load(std::string(kConfigs) + "/devices.yaml")->Find(name);
}

// Round figures: 100 TFLOP/s, of which half are reached, and 1000 GB/s.
DeviceSpec Round() {
  DeviceSpec device;
  device.bf16_tflops = 100;
  device.bandwidth_gb_per_s = 1000;
  device.mfu = {{1, 0.5}};
  return device;
}

TEST(CostModel, LinearWorkIsCountedFromTheSlices) {
  const SlicedModel model = Load("llama-13b");
  ASSERT_EQ(model.slices.size(), 41u);
  constexpr double d = 5120, ffn = 13824, vocab = 32000;
  const LinearWork first = WorkOf(model.slices[0], model.graph);  // embedding, then q, k, v
  EXPECT_EQ(first.weights, 3 * d * d);
  EXPECT_EQ(first.row_elements, 2 * d + 3 * 2 * d);
  // O, gate, up, down, then q, k, v.
  const LinearWork middle = WorkOf(model.slices[1], model.graph);
  EXPECT_EQ(middle.weights, 4 * d * d + 3 * d * ffn);
  EXPECT_EQ(middle.row_elements, 4 * 2 * d + 3 * (d + ffn));
  // O, gate, up, down, then the head.
  const LinearWork last = WorkOf(model.slices[40], model.graph);
  EXPECT_EQ(last.weights, d * d + 3 * d * ffn + d * vocab);
}

TEST(CostModel, BehindQueriesComeTheProjectionsToKAndV) {
  const SlicedModel model = Load("llama-13b");
  DeviceSpec compute_bound = Round();
  compute_bound.bandwidth_gb_per_s = 1e6;
  constexpr double d = 5120, ffn = 13824, rows = 64;
  EXPECT_DOUBLE_EQ(SecondsBehindQueries(compute_bound, model, 1, DType::kF16, 64),
                   2 * 2 * d * d * rows / 50e12);
  const double whole = SliceSeconds(compute_bound, model, 1, DType::kF16, 64);
  EXPECT_NEAR(SecondsBehindQueries(compute_bound, model, 1, DType::kF16, 64) / whole,
              2 * d * d / (4 * d * d + 3 * d * ffn), 1e-9);
  EXPECT_EQ(SecondsBehindQueries(compute_bound, model, 1, DType::kF16, 0), 0);
}

TEST(CostModel, LinearLayersTakeTheLongerOfOperationsAndBytes) {
  const LinearWork work{.weights = 1e9, .row_elements = 1e6};
  EXPECT_DOUBLE_EQ(LinearSeconds(Round(), work, DType::kBF16, 1), (2e9 + 2e6) / 1000e9)
      << "memory-bound";
  EXPECT_DOUBLE_EQ(LinearSeconds(Round(), work, DType::kF32, 1), (4e9 + 4e6) / 1000e9);
  EXPECT_DOUBLE_EQ(LinearSeconds(Round(), work, DType::kBF16, 1000), 2e12 / 50e12)
      << "compute-bound";
  EXPECT_EQ(LinearSeconds(Round(), work, DType::kBF16, 0), 0) << "nothing to run";
}

TEST(CostModel, TheLastSliceRunsForTheSampledRowsOnly) {
  const SlicedModel model = Load("llama-13b");
  const LinearWork last = WorkOf(model.slices.back(), model.graph);
  EXPECT_NEAR(
      StepSeconds(Round(), model, DType::kF16, 512, 512) -
          StepSeconds(Round(), model, DType::kF16, 512, 1),
      LinearSeconds(Round(), last, DType::kF16, 512) - LinearSeconds(Round(), last, DType::kF16, 1),
      1e-12);
}

// Lamina, section 4.2: the data of a step, 4 e d B L bytes, must not take longer than its linear
// layers. Table 3 gives GB/s.
TEST(CostModel, NetworkBandwidthsOfThePapersTable) {
  const auto needed = [](const SlicedModel& model, const DeviceSpec& device, double d,
                         double layers, int batch) {
    return 4 * 2 * d * batch * layers / StepSeconds(device, model, DType::kF16, batch, batch) *
           1e-9;
  };
  const SlicedModel small = Load("llama-13b"), large = Load("llama-33b");
  const DeviceSpec one = Device("A100-80G"), two = Device("2xA100-80G");
  const std::pair<int, std::pair<double, double>> table[] = {
      {128, {4.90, 5.94}}, {256, {8.12, 9.31}}, {512, {9.08, 11.56}}, {1024, {10.06, 12.53}}};
  for (const auto& [batch, expected] : table) {
    EXPECT_NEAR(needed(small, one, 5120, 40, batch) / expected.first, 1, 0.03) << batch;
    EXPECT_NEAR(needed(large, two, 6656, 60, batch) / expected.second, 1, 0.03) << batch;
  }
}

TEST(CostModel, AMeasuredProfileTakesThePlaceOfTheRoofline) {
  const TemporaryFolder folder;
  std::ofstream(folder / "p.csv")
      << "n_head,n_kv_head,n_embd,n_expanded_embd,num_tokens,num_tensor_parallel_workers,input_"
         "layernorm_ms,attn_pre_proj_ms,attn_rope_ms,"
         "attn_post_proj_ms,post_attention_layernorm_ms,mlp_up_proj_ms,mlp_act_ms,mlp_down_proj_ms,"
         "add_ms\n"
         "40,40,5120,13824,1,1,1,0,0,2,0,0,0,0,0\n"
         "40,40,5120,13824,101,1,2,0,0,4,0,0,0,0,0\n";
  DeviceSpec device = Round();
  device.profile = *LayerProfile::Load(folder / "p.csv", 1);
  const SlicedModel model = Load("llama-13b");
  EXPECT_DOUBLE_EQ(SliceSeconds(device, model, 0, DType::kF16, 1), 1e-3);
  EXPECT_DOUBLE_EQ(SliceSeconds(device, model, 1, DType::kF16, 101), 6e-3);
  EXPECT_EQ(SliceSeconds(device, model, 1, DType::kF16, 0), 0);
  const double head = 2. * (5120. * 32000 + 5120 + 32000) / 1000e9;  // memory-bound
  EXPECT_DOUBLE_EQ(SliceSeconds(device, model, 40, DType::kF16, 1), 2e-3 + head);
  EXPECT_NEAR(StepSeconds(device, model, DType::kF16, 1, 1), 40 * 3e-3 + head, 1e-12);

  ModelConfig config = *ModelConfig::Load(std::string(kConfigs) + "/models/llama-13b");
  config.intermediate_size = 13000;
  EXPECT_EQ(FitProfile(device, config, 1).code(), StatusCode::kInvalidArgument)
      << "one matrix alone takes time: too few to predict from";
  DeviceSpec without = Round();
  EXPECT_TRUE(FitProfile(without, config, 1).ok());
  EXPECT_FALSE(without.profile);
}

// Matrices take the time of their weights at 1000 GB/s, in milliseconds 2e-9 times their elements:
// q, k, v 3 x 5120 x 5120, and so on.
TEST(CostModel, AProfileOfAnotherShapeIsPredictedFrom) {
  const TemporaryFolder folder;
  std::ofstream(folder / "p.csv")
      << "n_head,n_kv_head,n_embd,n_expanded_embd,num_tokens,num_tensor_parallel_workers,input_"
         "layernorm_ms,attn_pre_proj_ms,attn_rope_ms,"
         "attn_post_proj_ms,post_attention_layernorm_ms,mlp_up_proj_ms,mlp_act_ms,mlp_down_proj_ms,"
         "add_ms\n"
         "40,40,5120,13824,1,1,0,0.157286,0,0.052429,0,0.283116,0,0.141558,0\n";
  DeviceSpec device = Round();
  device.profile = *LayerProfile::Load(folder / "p.csv", 1);
  ModelConfig config = *ModelConfig::Load(std::string(kConfigs) + "/models/llama-13b");
  config.intermediate_size = 10000;
  ASSERT_TRUE(FitProfile(device, config, 1).ok());
  EXPECT_EQ(device.profile->shape(), (LayerProfile::Shape{40, 40, 5120, 10000}));
  const double elements = 5120. * 5120 + 3 * 5120. * 10000;
  EXPECT_NEAR(device.profile->AfterAttentionSeconds(1) / (2e-12 * elements), 1, 0.01);
}

TEST(CostModel, AProfileThatWasMeasuredForTheModelIsTakenAsItIs) {
  const TemporaryFolder folder;
  const std::string header =
      "n_head,n_kv_head,n_embd,n_expanded_embd,num_tokens,num_tensor_parallel_workers,input_"
      "layernorm_ms,attn_pre_proj_ms,attn_rope_ms,"
      "attn_post_proj_ms,post_attention_layernorm_ms,mlp_up_proj_ms,mlp_act_ms,mlp_down_proj_ms,"
      "add_ms\n";
  std::ofstream(folder / "other.csv") << header << "32,32,4096,11008,1,1,1,1,1,1,1,1,1,1,1\n";
  std::ofstream(folder / "same.csv") << header << "40,40,5120,13824,1,1,7,0,0,9,0,0,0,0,0\n"
                                     << "40,40,5120,13824,1,2,3,0,0,4,0,0,0,0,0\n";
  DeviceSpec device = Round();
  device.profile = *LayerProfile::Load(folder / "other.csv", 1);
  device.other_profiles.push_back(*LayerProfile::Load(folder / "same.csv", 1));
  const ModelConfig config = *ModelConfig::Load(std::string(kConfigs) + "/models/llama-13b");
  DeviceSpec two = device;
  ASSERT_TRUE(FitProfile(device, config, 1).ok());
  EXPECT_DOUBLE_EQ(device.profile->AfterAttentionSeconds(1), 9e-3);
  ASSERT_TRUE(FitProfile(two, config, 2).ok());
  EXPECT_DOUBLE_EQ(two.profile->AfterAttentionSeconds(1), 4e-3);
  ModelConfig quantized = config;
  quantized.layer_bits = 4.5;
  EXPECT_EQ(FitProfile(device, quantized, 1).code(), StatusCode::kInvalidArgument)
      << "it was measured with plain weights";
}

TEST(CostModel, WeightBytesOfThePapersModels) {
  EXPECT_NEAR(static_cast<double>(WeightBytes(Load("llama-13b").graph, DType::kF16)) * 1e-9, 25.7,
              0.4);
  EXPECT_NEAR(static_cast<double>(WeightBytes(Load("llama-33b").graph, DType::kF16)) * 1e-9, 64.6,
              0.7);
}

TEST(CostModel, DecodeAttentionReadsTheKvCacheOnce) {
  const AttentionHeads heads{
      .num_heads = 40, .num_kv_heads = 40, .head_dim = 128, .dtype = DType::kF16};
  AttentionLoad load;
  for (int i = 0; i < 100; ++i) load.AddDecode(1000);
  EXPECT_EQ(load.queries, 100);
  EXPECT_EQ(load.kv_tokens, 100'000);
  const double kv_bytes = 2. * 2 * 5120 * 100'000;            // k and v
  const double row_bytes = 2. * (2 * 5120 + 2 * 5120) * 100;  // q, output, the new k and v
  EXPECT_DOUBLE_EQ(AttentionSeconds(Round(), heads, load), (kv_bytes + row_bytes) / 1000e9);
}

TEST(CostModel, GroupedHeadsReadLess) {
  AttentionLoad load;
  load.AddDecode(100'000);
  const AttentionHeads all{
      .num_heads = 64, .num_kv_heads = 64, .head_dim = 128, .dtype = DType::kBF16};
  AttentionHeads grouped = all;
  grouped.num_kv_heads = 8;
  EXPECT_NEAR(AttentionSeconds(Round(), all, load) / AttentionSeconds(Round(), grouped, load), 8,
              0.01);
}

TEST(CostModel, PrefillAttentionIsBoundByOperations) {
  const AttentionHeads heads{
      .num_heads = 32, .num_kv_heads = 32, .head_dim = 128, .dtype = DType::kBF16};
  AttentionLoad load;
  load.AddPrefill(1000, 500);
  EXPECT_EQ(load.queries, 500);
  EXPECT_EQ(load.kv_tokens, 1500);
  EXPECT_EQ(load.pairs, 500 * 1000 + 500 * 501 / 2);
  EXPECT_DOUBLE_EQ(AttentionSeconds(Round(), heads, load),
                   4. * 4096 * static_cast<double>(load.pairs) / 50e12);
  AttentionLoad in_chunks;
  in_chunks.AddPrefill(1000, 200);
  in_chunks.AddPrefill(1200, 300);
  EXPECT_EQ(in_chunks.pairs, load.pairs) << "chunks do the same work";
}

TEST(CostModel, WithAWindowPrefillCountsWhatIsInsideIt) {
  for (const int64_t first : {0, 3, 11, 40}) {
    for (const int64_t window : {1, 4, 12, 100}) {
      AttentionLoad load;
      load.AddPrefill(first, 9, {window});
      int64_t pairs = 0;
      for (int64_t position = first; position < first + 9; ++position)
        pairs += std::min(position + 1, window);
      EXPECT_EQ(load.pairs, pairs) << first << " " << window;
      EXPECT_EQ(load.kv_tokens, first + 9 - std::max<int64_t>(0, first - window + 1))
          << first << " " << window;
    }
  }
}

TEST(CostModel, InChunksPrefillCountsWhatIsInARowsOwnChunk) {
  for (const int64_t first : {0, 3, 11, 40}) {
    for (const int64_t size : {1, 4, 12, 100}) {
      AttentionLoad load;
      load.AddPrefill(first, 30, {size, /*chunked=*/true});
      int64_t pairs = 0;
      for (int64_t position = first; position < first + 30; ++position) {
        for (int64_t token = 0; token <= position; ++token)
          pairs += token / size == position / size ? 1 : 0;
      }
      EXPECT_EQ(load.pairs, pairs) << first << " " << size;
      EXPECT_EQ(load.kv_tokens, first + 30 - first / size * size) << first << " " << size;
    }
  }
}

// All experts are read, and a row is multiplied with those that it goes to.
TEST(CostModel, ExpertsAreReadOnceAndARowUsesSome) {
  Tracer tracer;
  const Tensor x = Embedding(tracer.tokens(), ModulePath("embed"), 100, 64);
  const Tensor y = Experts(x, Linear(x, ModulePath("router"), 8), ModulePath("experts"),
                           {.num_experts = 8, .per_token = 2, .intermediate_size = 96});
  const Graph graph = *tracer.Finish(y);
  Slice slice;
  slice.program = graph.ops;
  const LinearWork work = WorkOf(slice, graph);
  const double expert = 3 * 64 * 96;
  EXPECT_EQ(work.weights, 64 * 8 + 8 * expert);
  EXPECT_EQ(work.unrouted, 6 * expert);
}

TEST(CostModel, AttentionTakesItsOwnUtilisation) {
  DeviceSpec device = Round();
  device.attention_mfu = {{1, 0.001}};
  const AttentionHeads heads{32, 32, 128};
  AttentionLoad load;
  load.AddDecode(1000);
  EXPECT_DOUBLE_EQ(AttentionSeconds(device, heads, load),
                   AttentionOperations(heads, load) / (0.001 * device.peak_flops_per_s()));
  EXPECT_DOUBLE_EQ(AttentionOperations(heads, load), 4. * 4096 * 1000);
}

TEST(CostModel, KeysAndValuesOf8BitsHalveTheirBytesAndNoArithmetic) {
  DeviceSpec device = Round();
  AttentionLoad load;
  load.AddDecode(1000);
  const AttentionHeads wide{32, 32, 128, DType::kBF16}, narrow{32, 32, 128, DType::kF8};
  const double query_bytes = 2. * 2 * 4096, kv_bytes = 2. * 4096 * 1001;
  EXPECT_DOUBLE_EQ(AttentionSeconds(device, wide, load),
                   (query_bytes + 2 * kv_bytes) / device.reached_bytes_per_s());
  EXPECT_DOUBLE_EQ(AttentionSeconds(device, narrow, load),
                   (query_bytes + kv_bytes) / device.reached_bytes_per_s());
  const AttentionHeads scaled{32, 32, 128, DType::kI8Scaled};
  EXPECT_DOUBLE_EQ(AttentionSeconds(device, scaled, load),
                   (query_bytes + kv_bytes * 132 / 128) / device.reached_bytes_per_s());
  device.attention_mfu = {{1, 0.001}};  // bound by arithmetic
  EXPECT_DOUBLE_EQ(AttentionSeconds(device, scaled, load), AttentionSeconds(device, wide, load));
  EXPECT_DOUBLE_EQ(AttentionSeconds(device, narrow, load), AttentionSeconds(device, wide, load));
}

TEST(CostModel, NoTokensTakeNoTime) { EXPECT_EQ(AttentionSeconds(Round(), {32, 32, 128}, {}), 0); }

}  // namespace
}  // namespace lamina
