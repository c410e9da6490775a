#include "compute_node/modelled_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "compute_node/buffer_plan.h"
#include "compute_node/remote_attention.h"
#include "cost/cost_model.h"
#include "tests/support/paths.h"
#include "tests/support/virtual_clock.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;

const std::string kConfigs = SourcePath("/configs");

DeviceSpec Device(const std::string& name) {
  return *DeviceCatalog::Load(std::string(kConfigs) + "/devices.yaml")->Find(name);
}

WeightOptions Options(const std::string& model) {
  WeightOptions options;
  options.model_dir = std::string(kConfigs) + "/models/" + model;
  return options;
}

TEST(ModelledDevice, AModelNeedsItsConfigAlone) {
  ModelledDevice device(Device("A100-40G"));
  const Result<std::unique_ptr<LoadedModel>> model = device.Load(Options("llama-13b"));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->weights, nullptr);
  EXPECT_NEAR(static_cast<double>((*model)->weight_bytes), 26.0e9, 0.1e9);
}

TEST(ModelledDevice, WeightsThatDoNotFitAreRefused) {
  ModelledDevice device(Device("A100-40G"));
  const Status status = device.Load(Options("llama-33b")).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(status.message(),
              HasSubstr("has 65.1 GB of weights, more than the 40.0 GB of device A100-40G"));
  EXPECT_TRUE(ModelledDevice(Device("2xA100-40G")).Load(Options("llama-33b")).ok());
}

TEST(ModelledDevice, LoadingTakesTheTimeThatItsRateSays) {
  VirtualClock clock;
  DeviceSpec spec = Device("A100-40G");
  spec.load_gb_per_s = 2;
  ModelledDevice device(spec);
  const std::unique_ptr<LoadingModel> loading = *device.StartLoad(Options("llama-13b"));
  const int64_t bytes = loading->progress().total_bytes;
  EXPECT_EQ(loading->progress().loaded_bytes, 0);
  const Clock::duration whole = FromSeconds(static_cast<double>(bytes) / 2e9);
  clock.Advance(whole / 4);
  EXPECT_EQ(*loading->Continue(), nullptr);
  EXPECT_NEAR(static_cast<double>(loading->progress().loaded_bytes) / static_cast<double>(bytes),
              0.25, 1e-6);
  clock.Advance(whole - whole / 4 - milliseconds(1));
  EXPECT_EQ(*loading->Continue(), nullptr);
  EXPECT_EQ(loading->wake_at(), Clock::now() + milliseconds(1));
  clock.Advance(milliseconds(1));
  const std::unique_ptr<LoadedModel> model = *loading->Continue();
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->weight_bytes, bytes);
}

TEST(ModelledDevice, WeightsThatLieOutsideTakeNoMemoryButTimeOnTheLink) {
  OffloadOptions offload{.interval = 2, .folder = "", .buffers = 2, .gb_per_s = 1000};
  ModelledDevice device(Device("A100-40G"), {offload});
  const Result<std::unique_ptr<LoadedModel>> model = device.Load(Options("llama-33b"));
  ASSERT_TRUE(model.ok()) << "half of its 65 GB: " << model.status();
  std::unique_ptr<SliceRunner> slices = *device.MakeSlices(**model, 1);
  const std::vector<TokenId> tokens = {1};
  const std::vector<int32_t> positions = {0};
  const int num_slices = static_cast<int>((*model)->sliced.slices.size());
  const auto step = [&] {
    const TimePoint start = Clock::now();
    slices->Begin(tokens, positions);
    for (int k = 0; k < num_slices; ++k) EXPECT_EQ(slices->Run(k), nullptr);
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  step();
  const double bytes = static_cast<double>((*model)->weight_bytes) / 2;
  EXPECT_GT(step(), 0.9 * bytes / 1000e9) << "the link is faster than the device's memory";
  slices.reset();
  offload.gb_per_s = 100;
  ModelledDevice slow(Device("A100-40G"), {offload});
  const std::unique_ptr<LoadedModel> same = *slow.Load(Options("llama-33b"));
  slices = *slow.MakeSlices(*same, 1);
  step();
  EXPECT_GT(step(), 0.9 * bytes / 100e9) << "it waits for the link";
  slices.reset();  // before its model
}

TEST(ModelledDevice, WithoutALinkNothingCanLieOutside) {
  OffloadOptions offload{.interval = 2, .folder = "", .buffers = 2, .gb_per_s = 0};
  EXPECT_TRUE(ModelledDevice(Device("A100-40G"), {offload}).Load(Options("llama-13b")).ok())
      << "the catalog has its link";
  const Status status =
      ModelledDevice(Device("H20"), {offload}).Load(Options("llama-13b")).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("no host_link_gb_per_s of device H20"));
}

TEST(ModelledDevice, StepsThatTheHostHasNoMemoryForAreRefused) {
  ModelledDevice device(Device("A100-40G"));
  const std::unique_ptr<LoadedModel> model = *device.Load(Options("llama-13b"));
  const Status status = device.MakeSlices(*model, std::numeric_limits<int>::max()).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(
      status.message(),
      ::testing::MatchesRegex("the values of a step of 2147483647 tokens need [0-9.]+ GB of this "
                              "host's memory, which has [0-9.]+ GB available"));
}

// A modelled device has no KV cache that would be too large for it.
TEST(ModelledDevice, SlotsThatCannotBeNumberedOrKeptAreRefused) {
  ModelledDevice device(Device("A100-40G"));
  RemoteAttentionOptions options;
  for (const int64_t tokens : {int64_t{1} << 33, int64_t{0}}) {
    options.prefill_cache_tokens = tokens;
    const Status status =
        RemoteAttention::Create(options, nullptr, {}, device, Deadline::After({})).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  }
}

TEST(ModelledDevice, AShareOfAModelNeedsRoomForItsOwnWeightsOnly) {
  WeightOptions options = Options("llama-33b");
  for (const ModelShare& share : {ModelShare{2, 0, 1, 0}, ModelShare{2, 1, 1, 0},
                                  ModelShare{1, 0, 2, 0}, ModelShare{1, 0, 2, 1}}) {
    options.share = share;
    ModelledDevice device(Device("A100-40G"));
    const Result<std::unique_ptr<LoadedModel>> model = device.Load(options);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_NEAR(static_cast<double>((*model)->weight_bytes), 65.1e9 / 2, 1.2e9);
  }
}

// A rank reads its part of the matrices, and each sum's parts and result.
TEST(ModelledDevice, RanksTakeTheTimeOfTheirParts) {
  WeightOptions options = Options("llama-13b");
  options.share = {1, 0, 2, 0};
  ModelledDevice device(Device("A100-40G"));
  const std::unique_ptr<LoadedModel> model = *device.Load(options);
  const std::unique_ptr<SliceRunner> slices = *device.MakeSlices(*model, 8);
  const std::vector<TokenId> tokens(8, 5);
  const std::vector<int32_t> positions(8, 0);
  slices->Begin(tokens, positions);
  int sums = 0;
  const TimePoint start = Clock::now();
  for (int k = 0; k <= 40; ++k) {
    if (k < 40) {
      while (const Op* op = slices->RunToQueries(k)) {
        ++sums;
        // Out of bounds: for the address sanitizer.
        std::fill_n(slices->value(op->inputs[0]), 8 * 5120, 1.0f);
        std::fill_n(slices->value(op->output), 8 * 5120, 1.0f);
      }
    }
    while (slices->Run(k) != nullptr) ++sums;
  }
  EXPECT_EQ(sums, 2 * 40);
  const DeviceSpec a100 = Device("A100-40G");
  const double parts = 0.999 * 0.5 * (26.0e9 - 2 * 2 * 32000 * 5120) / a100.reached_bytes_per_s();
  EXPECT_GE(SecondsSince(start), parts);
  EXPECT_GE(SecondsSince(start), 0.98 * StepSeconds(a100, model->sliced, DType::kF16, 8, 8));
}

class ModelledSlicesTest : public ::testing::Test {
 protected:
  ModelledDevice device_{Device("A100-40G")};
  const std::unique_ptr<LoadedModel> model_ = *device_.Load(Options("llama-13b"));
  const std::unique_ptr<SliceRunner> slices_ = *device_.MakeSlices(*model_, 8);
};

TEST_F(ModelledSlicesTest, SlicesTakeTheTimeOfTheCostModel) {
  const std::vector<TokenId> tokens(8, 5);
  const std::vector<int32_t> positions(8, 0);
  const TimePoint start = Clock::now();
  slices_->Begin(tokens, positions);
  for (int k = 0; k <= 40; ++k) slices_->Run(k);
  const DeviceSpec a100 = Device("A100-40G");
  EXPECT_GE(SecondsSince(start), 0.999 * StepSeconds(a100, model_->sliced, DType::kF16, 8, 8));
}

TEST_F(ModelledSlicesTest, QueriesAreThereBeforeTheSliceEnds) {
  const std::vector<TokenId> tokens(8, 5);
  const std::vector<int32_t> positions(8, 0);
  const DeviceSpec a100 = Device("A100-40G");
  const double slice = SliceSeconds(a100, model_->sliced, 0, DType::kF16, 8);
  const double behind = SecondsBehindQueries(a100, model_->sliced, 0, DType::kF16, 8);
  double quickest = 1;
  // This machine may do something else just then, but not each time.
  for (int i = 0; i < 50 && quickest >= slice; ++i) {
    slices_->Begin(tokens, positions);
    const TimePoint start = Clock::now();
    slices_->RunToQueries(0);
    EXPECT_GE(SecondsSince(start), 0.999 * (slice - behind));
    SleepUntil(start + FromSeconds(slice));  // the device does not wait for its host
    const TimePoint again = Clock::now();
    slices_->Run(0);
    EXPECT_GE(SecondsSince(start), 0.999 * slice);
    quickest = std::min(quickest, SecondsSince(again));
  }
  EXPECT_LT(quickest, slice) << "the slice is begun anew";
}

TEST_F(ModelledSlicesTest, WhatAttentionReadsAndWritesIsThereForEveryRow) {
  for (const Slice& slice : model_->sliced.slices) {
    for (const ValueId id : {slice.q, slice.k, slice.v, slice.attention_out}) {
      if (id < 0) continue;
      float* values = slices_->value(id);
      std::fill_n(values, 8 * 5120, 1.0f);  // out of bounds: for the address sanitizer
    }
  }
  const Slice& slice = model_->sliced.slices[1];
  EXPECT_NE(slices_->value(slice.q), slices_->value(slice.k));
  EXPECT_NE(slices_->value(slice.q), slices_->value(slice.attention_out));
}

// A step may ask for it, for an embedding; the answer stays what it was.
TEST_F(ModelledSlicesTest, WhatTheLogitsAreMadeOfIsNeverComputed) {
  const std::optional<HeadOps> head = HeadOpsOf(model_->sliced);
  ASSERT_TRUE(head);
  const int row = 0;
  std::vector<float> state(5120, 3);
  auto* const message = reinterpret_cast<std::byte*>(state.data());
  const PackedParts part{slices_->value(head->input), {{&row, 1}, 5120, 0, 5120}};
  EXPECT_EQ(device_.Pack({&part, 1}, message), message + 5120 * sizeof(float));
  EXPECT_EQ(state, std::vector<float>(5120, 3));
}

TEST_F(ModelledSlicesTest, TheTokenIsValidAndEndsNothing) {
  const SamplingParams plain;
  SamplingParams bans;
  bans.banned = {0};
  bans.min_tokens = 1;
  const std::vector<TokenId> output = {5};
  const std::vector<SampleWork> work = {
      {0, &plain, {}}, {1, &bans, {}}, {2, &bans, {.prompt = {}, .output = output}}};
  std::vector<SampledToken> tokens(work.size());
  slices_->Sample(work, tokens);
  EXPECT_EQ(tokens[0].token, 0);
  EXPECT_EQ(tokens[1].token, 3) << "1 is the model's bos, 2 its eos";
  EXPECT_EQ(tokens[2].token, 0) << "no longer banned";
}

TEST(ModelledKv, PrefillTakesItsOperations) {
  DeviceSpec slow = Device("A100-40G");
  slow.bf16_tflops = 0.01;
  slow.mfu = {{1, 1.0}};
  ModelledDevice device(slow);
  const AttentionShape shape{.num_heads = 4, .num_kv_heads = 4, .head_dim = 64, .scale = 1};
  const std::unique_ptr<LocalKv> kv = *device.MakeKv(shape, {2, 4, 64, DType::kBF16}, {}, 1000);
  std::vector<AttentionWork> rows;
  for (const uint64_t sequence : {1, 2}) {
    for (int64_t position = 0; position < 300; ++position)
      rows.push_back({.sequence = {sequence}, .node = {}, .position = position, .prefill = true});
  }
  Failures failures;
  const auto seconds = [&] {
    const TimePoint start = Clock::now();
    kv->Attend({}, StepId{1}, rows, failures);
    return SecondsSince(start);
  };
  const double one_sequence = 4. * 256 * (300 * 301 / 2) / 0.01e12;
  EXPECT_GE(seconds(), 2 * 0.999 * one_sequence);
  failures.emplace(SequenceId{1}, InternalError("gone"));
  failures.emplace(SequenceId{2}, InternalError("gone"));
  const TimePoint start = Clock::now();
  for (int i = 0; i < 100; ++i) seconds();
  EXPECT_LT(SecondsSince(start), 100 * one_sequence) << "rows of failed sequences are not computed";
}

}  // namespace
}  // namespace lamina
