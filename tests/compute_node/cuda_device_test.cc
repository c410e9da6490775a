// The GPU as a compute device, against the CPU's. Without a GPU these tests run in builds whose
// kernels are emulated (docs/cuda.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <random>

#include "compute_node/compute_device.h"
#include "compute_node/local_attention.h"
#include "compute_node/make_compute_device.h"
#include "kernels/cuda/device.h"
#include "tests/support/families.h"
#include "tests/support/gguf_models.h"
#include "tests/support/golden_prompts.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_checkpoint.h"
#if LAMINA_HAS_CUDA
#include "compute_node/cuda/cuda_weights.h"
#include "tests/kernels/cuda_cases.h"
#endif

namespace lamina {
namespace {

using testing::Families;
using ::testing::HasSubstr;

constexpr int kMaxRows = 8;
constexpr SequenceId kSequence{1};

// Of a logit, against the largest one of its row. Linear layers take x in two parts of 16 bits
// together, and their sums in another order than the CPU's: 2^-16 each, which a few layers carry
// on.
constexpr float kLogitTolerance = 1e-3f;

AttentionShape ShapeOf(const SlicedModel& model) {
  const Op& first = model.attentions[0];
  return {first.num_heads, first.num_kv_heads, first.head_dim, first.scale, first.soft_cap};
}

KvShape KvOf(const SlicedModel& model, DType dtype) {
  const Op& first = model.attentions[0];
  return {static_cast<int>(model.attentions.size()), first.num_kv_heads, first.head_dim, dtype};
}

// n elements of a value, on this host.
std::vector<float> Read(ComputeDevice& device, const float* value, int64_t n) {
  std::vector<float> read(static_cast<size_t>(n));
  const PackedParts packed{value, RowParts::Whole(n), DType::kF32};
  EXPECT_EQ(device.Pack({&packed, 1}, reinterpret_cast<std::byte*>(read.data())),
            reinterpret_cast<std::byte*>(read.data() + read.size()));
  return read;
}

void Write(ComputeDevice& device, const std::vector<float>& values, float* value) {
  device.Unpack(reinterpret_cast<const std::byte*>(values.data()), DType::kF32,
                RowParts::Whole(std::ssize(values)), value);
}

// One sequence through the slices of a model with local attention, on any device.
class OneSequence {
 public:
  OneSequence(ComputeDevice& device, const std::string& dir, DType kv_dtype) : device_(device) {
    WeightOptions options;
    options.model_dir = dir;
    Result<std::unique_ptr<LoadedModel>> model = device.Load(options);
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = std::move(*model);
    AttentionLayers layers{.sinks = model_->sinks};
    for (const Op& op : model_->sliced.attentions) layers.windows.push_back(op.window);
    attention_ = std::make_unique<LocalAttention>(
        *device.MakeKv(ShapeOf(model_->sliced), KvOf(model_->sliced, kv_dtype), layers, 64), 1);
    slices_ = *device.MakeSlices(*model_, kMaxRows);
  }

  // Logits of the rows `kept` of `tokens`, which continue the sequence. With `queries_first` each
  // slice runs in two parts.
  std::vector<float> Step(std::span<const TokenId> tokens, const std::vector<int>& kept,
                          bool queries_first = false) {
    std::vector<int32_t> positions;
    std::vector<AttentionWork> rows;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto position = static_cast<int32_t>(num_tokens_ + std::ssize(rows));
      positions.push_back(position);
      rows.push_back({.sequence = kSequence,
                      .node = NodeId{},
                      .position = position,
                      .slot = static_cast<TokenSlot>(63 - position)});
    }
    num_tokens_ += std::ssize(tokens);
    attended_ = &attention_->Begin({0, StepId{++step_}, rows});
    slices_->Begin(tokens, positions);
    for (const Slice& slice : model_->sliced.slices) {
      if (slice.attention < 0) {
        slices_->KeepRows(slice.index, kept);
      } else if (queries_first) {
        EXPECT_EQ(slices_->RunToQueries(slice.index), nullptr);
      }
      EXPECT_EQ(slices_->Run(slice.index), nullptr);
      if (slice.attention < 0) continue;
      const Op& op = model_->sliced.attentions[static_cast<size_t>(slice.attention)];
      attended_->Start({op.layer, slices_->value(op.inputs[0]), slices_->value(op.inputs[1]),
                        slices_->value(op.inputs[2]), slices_->value(op.output)});
      EXPECT_TRUE(attended_->Finish());
    }
    EXPECT_TRUE(attended_->failures().empty());
    attended_->End();
    return Read(device_, slices_->value(model_->sliced.graph.logits), std::ssize(kept) * vocab());
  }

  int64_t vocab() const {
    return model_->sliced.graph.values[static_cast<size_t>(model_->sliced.graph.logits)].width;
  }
  SliceRunner& slices() { return *slices_; }
  const LoadedModel& model() const { return *model_; }

 private:
  ComputeDevice& device_;
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<LocalAttention> attention_;
  AttentionStep* attended_ = nullptr;  // the step under way
  std::unique_ptr<SliceRunner> slices_;
  int64_t num_tokens_ = 0;
  uint64_t step_ = 0;
};

void ExpectNear(const std::vector<float>& got, const std::vector<float>& expected,
                float tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  float largest = 0;
  for (const float x : expected) largest = std::max(largest, std::abs(x));
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], tolerance * largest) << "element " << i;
}

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const Result<int> count = cuda::DeviceCount(); !count.ok()) GTEST_SKIP() << count.status();
    Result<std::unique_ptr<ComputeDevice>> device = MakeComputeDevice(CudaGpu{0}, team_);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = std::move(*device);
  }

  WorkerTeam team_{1};
  CpuDevice cpu_{team_};
  std::unique_ptr<ComputeDevice> device_;
};

class CudaFamiliesTest : public CudaDeviceTest,
                         public ::testing::WithParamInterface<testing::Family> {};

TEST_P(CudaFamiliesTest, SlicesAndAttentionGiveTheLogitsOfTransformers) {
  const testing::FamilyGolden golden = GetParam().Golden();
  OneSequence sequence(*device_, GetParam().dir, DType::kF32);
  const std::span<const TokenId> prompt = golden.prompt;
  std::vector<float> logits;
  for (size_t begin = 0; begin < prompt.size(); begin += 7) {
    const std::span<const TokenId> chunk =
        prompt.subspan(begin, std::min<size_t>(7, prompt.size() - begin));
    logits = sequence.Step(chunk, {static_cast<int>(chunk.size()) - 1});
  }
  for (size_t i = 0; i < 3; ++i) {
    SCOPED_TRACE("token " + std::to_string(i));
    ExpectNear(logits, golden.logits[i], kLogitTolerance);
    logits = sequence.Step({&golden.tokens[i], 1}, {0});
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaFamiliesTest, ::testing::ValuesIn(Families()),
                         [](const auto& info) { return TestName(info.param); });
INSTANTIATE_TEST_SUITE_P(Quantized, CudaFamiliesTest,
                         ::testing::ValuesIn(testing::QuantizedFamilies()),
                         [](const auto& info) { return TestName(info.param); });

// The head is the embedding, and in memory twice: as codes and as a table.
TEST_F(CudaDeviceTest, GgufWeightsGiveTheLogitsOfTheirDequantizedValues) {
  const TemporaryFolder folder;
  for (const testing::GgufGolden& golden : testing::GgufGoldens()) {
    SCOPED_TRACE(golden.format);
    const std::string file = folder / (golden.format + ".gguf");
    testing::WriteTinyStories(golden.format, file);
    OneSequence sequence(*device_, file, DType::kF32);
    std::span<const TokenId> prompt = golden.prompts.front().prompt_ids;
    for (; prompt.size() > kMaxRows; prompt = prompt.subspan(kMaxRows))
      sequence.Step(prompt.first(kMaxRows), {kMaxRows - 1});
    ExpectNear(sequence.Step(prompt, {static_cast<int>(prompt.size()) - 1}), golden.first_logits,
               2e-3f);
  }
}

#if LAMINA_HAS_CUDA
// A GPU, of whose models the weights of some slices lie in the host's memory. What a slice has left
// behind is overwritten.
std::unique_ptr<ComputeDevice> WithWeightsOutside(OffloadOptions offload, WorkerTeam& team) {
  offload.poison = true;
  return *MakeComputeDevice(CudaGpu{0}, team, {.weights = offload});
}

// The logits of a prompt and of some tokens behind it, for each of two steps that are in parts.
std::vector<float> SomeLogits(OneSequence& sequence) {
  std::vector<float> logits = sequence.Step(std::vector<TokenId>{1, 5, 9, 2}, {1, 3});
  for (const TokenId token : {7, 3, 8, 4, 6}) {
    const std::vector<float> more =
        sequence.Step({&token, 1}, {0}, /*queries_first=*/token % 2 == 0);
    logits.insert(logits.end(), more.begin(), more.end());
  }
  return logits;
}

class CudaOutsideTest : public CudaDeviceTest, public ::testing::WithParamInterface<bool> {
 protected:
  // Made before the devices under test.
  const std::unique_ptr<cuda::RunningStreams> running_ =
      GetParam() ? std::make_unique<cuda::RunningStreams>() : nullptr;
};

INSTANTIATE_TEST_SUITE_P(Streams, CudaOutsideTest, ::testing::Bool(), [](const auto& info) {
  return info.param ? "go_on_by_themselves" : "as_late_as_they_may";
});

TEST_P(CudaOutsideTest, WeightsGiveTheSameBits) {
  const TemporaryFolder folder;
  testing::WriteTinyStories("q4_k_m", folder / "m.gguf");
  for (const std::string& dir : {testing::TinyStoriesDir(), folder / "m.gguf"}) {
    OneSequence inside(*device_, dir, DType::kF32);
    const std::vector<float> expected = SomeLogits(inside);
    int num_rings = 0;
    const int largest = dir == testing::TinyStoriesDir() ? 5 : 1;
    if (GetParam() && largest == 1) continue;  // it is slow
    for (int interval = 1; interval <= largest; ++interval) {
      for (int buffers = 1; buffers <= 3; ++buffers) {
        for (const double portion : {1.0, 0.4}) {
          SCOPED_TRACE(dir + " interval " + std::to_string(interval) + " buffers " +
                       std::to_string(buffers) + " portion " + std::to_string(portion));
          const OffloadOptions offload{
              .interval = interval, .portion = portion, .buffers = buffers};
          const auto device = WithWeightsOutside(offload, team_);
          WeightOptions options;
          options.model_dir = dir;
          if (const Status status = device->Load(options).status(); !status.ok()) {
            EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
            EXPECT_GE(buffers, 5 / interval) << status;
            continue;
          }
          ++num_rings;
          OneSequence sequence(*device, dir, DType::kF32);
          EXPECT_EQ(SomeLogits(sequence), expected);
          const cuda::PinnedRing& ring =
              static_cast<const CudaWeights&>(*sequence.model().device_weights).ring()->ring();
          EXPECT_EQ(ring.num_out_of_order(), 0);
          // Six steps, and what has come for the next one. Of five blocks in three buffers one has
          // a buffer to itself.
          const int64_t stays = buffers == 3 ? ring.buffer_bytes() / buffers : 0;
          EXPECT_GE(ring.bytes_copied(), 6 * (ring.bytes_outside() - stays));
          EXPECT_LE(ring.bytes_copied(), 6 * ring.bytes_outside() + ring.buffer_bytes());
          EXPECT_LT(ring.buffer_bytes(), ring.bytes_outside() * buffers);
        }
      }
    }
    EXPECT_EQ(num_rings, 2 * (largest == 5 ? 3 + 1 : 3));
  }
}

// A rank's share of a step, which stops at every sum over all ranks; that has the rank's part alone
// here. Keeps what each slice has computed.
class ShareOfAStep {
 public:
  ShareOfAStep(ComputeDevice& device, const LoadedModel& model, TokenId token)
      : device_(device), model_(model), slices_(*device.MakeSlices(model, kMaxRows)) {
    slices_->Begin(std::span(&token, 1), std::vector<int32_t>{3});
  }

  bool done() const { return k_ == std::ssize(model_.sliced.slices); }
  // Goes on to the next sum or the end of a slice.
  void GoOn() {
    const Slice& slice = model_.sliced.slices[static_cast<size_t>(k_)];
    if (const Op* const sum = slices_->Run(k_)) {
      Write(device_, ValueOf(sum->inputs[0]), slices_->value(sum->output));
      return;
    }
    ++k_;
    if (slice.attention < 0) {
      values.push_back(ValueOf(model_.sliced.graph.logits));
      return;
    }
    const Op& op = model_.sliced.attentions[static_cast<size_t>(slice.attention)];
    values.push_back(ValueOf(op.inputs[0]));
    Write(device_, ValueOf(op.inputs[0]), slices_->value(op.output));
  }

  std::vector<std::vector<float>> values;

 private:
  std::vector<float> ValueOf(ValueId id) {
    return Read(device_, slices_->value(id),
                model_.sliced.graph.values[static_cast<size_t>(id)].width);
  }

  ComputeDevice& device_;
  const LoadedModel& model_;
  std::unique_ptr<SliceRunner> slices_;
  int k_ = 0;
};

// Two steps that stop amid slices, one in another slice or in the same one as the other.
TEST_P(CudaOutsideTest, StepsThatStopAmidASliceFindTheirWeightsAgain) {
  WeightOptions options;
  options.model_dir = testing::TinyStoriesDir();
  options.share.num_ranks = 2;
  const auto inside = *device_->Load(options);
  std::array<std::vector<std::vector<float>>, 2> expected;
  for (size_t i = 0; i < 2; ++i) {
    ShareOfAStep step(*device_, *inside, static_cast<TokenId>(5 + i));
    while (!step.done()) step.GoOn();
    expected[i] = step.values;
  }
  for (const OffloadOptions& offload :
       {OffloadOptions{.interval = 1, .buffers = 1}, OffloadOptions{.interval = 2, .buffers = 1},
        OffloadOptions{.interval = 1, .buffers = 2}}) {
    const auto device = WithWeightsOutside(offload, team_);
    const auto model = *device->Load(options);
    for (unsigned seed = 0; seed < 6; ++seed) {
      SCOPED_TRACE("interval " + std::to_string(offload.interval) + " seed " +
                   std::to_string(seed));
      std::mt19937 random(seed);
      ShareOfAStep one(*device, *model, 5), other(*device, *model, 6);
      while (!one.done() || !other.done()) {
        ShareOfAStep& next = !one.done() && (other.done() || random() % 2 == 0) ? one : other;
        next.GoOn();
      }
      EXPECT_EQ(one.values, expected[0]);
      EXPECT_EQ(other.values, expected[1]);
    }
  }
}

// The slices of two steps in turn: each finds another one's weights in its buffer.
TEST_F(CudaDeviceTest, TwoRunnersMayShareWhatLiesOutside) {
  const std::string dir = testing::TinyStoriesDir();
  WeightOptions options;
  options.model_dir = dir;
  const auto device = WithWeightsOutside({.interval = 1, .buffers = 1}, team_);
  const auto outside = *device->Load(options), inside = *device_->Load(options);
  const auto step = [&](SliceRunner& slices, int k) {
    if (k == 0) slices.Begin(std::vector<TokenId>{5}, std::vector<int32_t>{3});
    EXPECT_EQ(slices.Run(k), nullptr);
  };
  const auto result = [&](ComputeDevice& of, const LoadedModel& model, SliceRunner& slices) {
    return Read(
        of, slices.value(model.sliced.attentions[0].inputs[0]),
        model.sliced.graph.values[static_cast<size_t>(model.sliced.attentions[0].inputs[0])].width);
  };
  const auto plain = *device_->MakeSlices(*inside, kMaxRows);
  step(*plain, 0);
  const std::vector<float> expected = result(*device_, *inside, *plain);
  const auto one = *device->MakeSlices(*outside, kMaxRows),
             other = *device->MakeSlices(*outside, kMaxRows);
  for (int times = 0; times < 3; ++times) {
    step(*one, 0);
    EXPECT_EQ(result(*device, *outside, *one), expected);
    step(*other, 0);
    EXPECT_EQ(result(*device, *outside, *other), expected);
  }
  const CudaWeightRing& ring = *static_cast<const CudaWeights&>(*outside->device_weights).ring();
  EXPECT_EQ(ring.ring().num_out_of_order(), 5);
}

TEST_P(CudaOutsideTest, IntervalsMayChangeBetweenSteps) {
  const TemporaryFolder folder;
  testing::WriteTinyStories("q4_k_m", folder / "m.gguf");
  for (const std::string& dir : {testing::TinyStoriesDir(), folder / "m.gguf"}) {
    OneSequence inside(*device_, dir, DType::kF32);
    const auto device = WithWeightsOutside({.is_auto = true, .buffers = 1}, team_);
    OneSequence sequence(*device, dir, DType::kF32);
    EXPECT_EQ(sequence.model().largest_interval, 0);  // there is memory for all
    const CudaWeightRing& ring =
        *static_cast<const CudaWeights&>(*sequence.model().device_weights).ring();
    int64_t copied = 0;
    for (const int interval : {0, 0, 2, 2, 1, 1, 5, 0, 2, 1, 0, 0}) {
      SCOPED_TRACE(dir + " interval " + std::to_string(interval));
      sequence.model().SetInterval(interval);
      // The third step is replayed.
      const int num_steps = dir == testing::TinyStoriesDir() ? 3 : 1;
      for (TokenId token = 3; token < 3 + num_steps; ++token) {
        copied = ring.ring().bytes_copied();
        EXPECT_EQ(sequence.Step({&token, 1}, {0}), inside.Step({&token, 1}, {0}));
      }
    }
    EXPECT_EQ(ring.ring().bytes_copied(), copied);  // all stay
    sequence.model().SetInterval(1);
    const TokenId token = 4;
    EXPECT_EQ(sequence.Step({&token, 1}, {0}), inside.Step({&token, 1}, {0}));
    EXPECT_GE(ring.ring().bytes_copied() - copied, ring.ring().bytes_outside() * 4 / 5);
  }
}

// Three of five slices, one of them in turns.
TEST_F(CudaDeviceTest, IntervalsForWhichThereIsNoMemoryAreNotTaken) {
  const std::string dir = testing::TinyStoriesDir();
  WeightOptions options;
  options.model_dir = dir;
  const auto all = *WithWeightsOutside({.is_auto = true, .buffers = 1}, team_)->Load(options);
  const int64_t bytes =
      static_cast<const CudaWeights&>(*all->device_weights).ring()->ring().buffer_bytes() / 5;
  OneSequence inside(*device_, dir, DType::kF32);
  const auto device = WithWeightsOutside(
      {.is_auto = true, .memory_bytes = 4 * bytes + bytes / 2, .buffers = 1}, team_);
  OneSequence sequence(*device, dir, DType::kF32);
  EXPECT_EQ(sequence.model().largest_interval, 2);
  const cuda::PinnedRing& ring =
      static_cast<const CudaWeights&>(*sequence.model().device_weights).ring()->ring();
  EXPECT_EQ(ring.buffer_bytes(), 4 * bytes);
  for (const int interval : {0, 1, 2, 0}) {
    sequence.model().SetInterval(interval);
    const TokenId token = 4;
    const int64_t copied = ring.bytes_copied();
    EXPECT_EQ(sequence.Step({&token, 1}, {0}), inside.Step({&token, 1}, {0}));
    EXPECT_GT(ring.bytes_copied(), copied);  // never all of them
  }
  EXPECT_EQ(WithWeightsOutside({.is_auto = true, .memory_bytes = bytes / 2, .buffers = 1}, team_)
                ->Load(options)
                .status()
                .code(),
            StatusCode::kOutOfSpace);
}

TEST_P(CudaOutsideTest, LayersGiveTheSameBits) {
  const std::string dir = testing::TinyStoriesDir();
  OneSequence inside(*device_, dir, DType::kBF16);
  const std::vector<float> expected = SomeLogits(inside);
  for (const OffloadOptions& kv : {OffloadOptions{.interval = 1, .buffers = 1, .poison = true},
                                   OffloadOptions{.interval = 2, .buffers = 1, .poison = true},
                                   OffloadOptions{.expansion = 2, .poison = true}}) {
    const auto device = *MakeComputeDevice(CudaGpu{0}, team_, {.kv = kv});
    OneSequence sequence(*device, dir, DType::kBF16);
    EXPECT_EQ(SomeLogits(sequence), expected) << kv.interval;
  }
}

TEST_F(CudaDeviceTest, WhatCannotLieOutsideIsRefused) {
  const auto refused = [&](const ComputeOffload& offload) {
    return MakeComputeDevice(CudaGpu{0}, team_, offload).status().message();
  };
  EXPECT_THAT(refused({.kv = {.expansion = 2, .is_auto = true}}), HasSubstr("cannot change yet"));
  EXPECT_THAT(refused({.weights = {.interval = 2, .folder = "/var/tmp"}}),
              HasSubstr("leave out the folder"));
}
#endif

TEST_F(CudaDeviceTest, TwoPartsOfASliceAndKeptRowsAreThoseOfTheCpu) {
  TinyCheckpointOptions options;
  options.tied_head = true;  // one matrix, two roles
  options.attention_bias = true;
  for (const char* dtype : {"BF16", "F16", "F32"}) {
    SCOPED_TRACE(dtype);
    options.dtype = dtype;
    const TinyCheckpoint checkpoint(options);
    OneSequence here(cpu_, checkpoint.dir(), DType::kBF16),
        there(*device_, checkpoint.dir(), DType::kBF16);
    const std::vector<TokenId> prompt = {5, 9, 1, 44, 80, 3}, next = {17, 61, 2};
    // K and V are rounded to bf16: where the two devices' are on both sides of a rounding, they
    // differ by 2^-8.
    ExpectNear(there.Step(prompt, {1, 3, 4}), here.Step(prompt, {1, 3, 4}), 1e-2f);
    ExpectNear(there.Step(next, {0, 1, 2}, /*queries_first=*/true), here.Step(next, {0, 1, 2}),
               1e-2f);
    EXPECT_TRUE(there.Step({}, {}).empty()) << "a step without rows";
  }
}

// The first step of a size is launched kernel by kernel, the second is recorded, the others are
// replayed, each in buffers that hold what larger steps left there.
TEST_F(CudaDeviceTest, StepsThatAreReplayedAreThoseOfTheCpu) {
  TinyCheckpointOptions options;
  options.attention_bias = true;
  const TinyCheckpoint checkpoint(options);
  for (const bool queries_first : {false, true}) {
    OneSequence here(cpu_, checkpoint.dir(), DType::kF32),
        there(*device_, checkpoint.dir(), DType::kF32);
    TokenId token = 1;
    for (const int rows : {8, 3, 5, 3, 1, 5, 3, 8, 5, 1, 3, 1, 8, 1, 5}) {
      SCOPED_TRACE(rows);
      std::vector<TokenId> tokens;
      std::vector<int> kept;
      for (int i = 0; i < rows; ++i) {
        token = (token * 29 + 7) % 90;
        tokens.push_back(token);
        if (i % 2 == 0) kept.push_back(i);
      }
      ExpectNear(there.Step(tokens, kept, queries_first), here.Step(tokens, kept), kLogitTolerance);
    }
  }
}

TEST_F(CudaDeviceTest, MessagesAreThoseOfTheCpuBitForBit) {
  constexpr int64_t kRows = 6, kPitch = 40;
  TinyCheckpointOptions options;
  options.hidden_size = kPitch;
  const TinyCheckpoint checkpoint(options);
  WeightOptions weights;
  weights.model_dir = checkpoint.dir();
  const std::unique_ptr<LoadedModel> model = *device_->Load(weights);
  const std::unique_ptr<SliceRunner> slices = *device_->MakeSlices(*model, kRows);
  // The residual stream, [rows, hidden_size].
  float* const value = slices->value(model->sliced.slices[1].context_in[0]);
  std::vector<float> here(kRows * kPitch);
  for (size_t i = 0; i < here.size(); ++i) here[i] = std::sin(static_cast<float>(i)) * 3;
  Write(*device_, here, value);
  EXPECT_EQ(Read(*device_, value, kRows * kPitch), here);

  const std::vector<int> gaps = {0, 2, 5}, run = {2, 3, 4}, one = {4}, none;
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kF8, DType::kI8Scaled, DType::kF8Scaled}) {
    for (const std::vector<int>& rows : {gaps, run, one, none}) {
      const RowParts parts{rows, kPitch, 8, 24};
      const auto packed = [&](const float* of) {
        return std::vector<PackedParts>{{of, parts, dtype, /*head_dim=*/8},
                                        {of, RowParts{gaps, kPitch, 16, 8}, DType::kF32},
                                        {of, parts, DType::kBF16}};
      };
      std::vector<std::byte> expected(4096), got(4096);
      const auto bytes = cpu_.Pack(packed(here.data()), expected.data()) - expected.data();
      EXPECT_EQ(device_->Pack(packed(value), got.data()) - got.data(), bytes);
      EXPECT_EQ(got, expected);
      if (IsForKvOnly(dtype)) continue;  // a compute node only sends them

      std::vector<float> before(here.size(), 7.0f);
      Write(*device_, before, value);
      device_->Unpack(got.data(), dtype, parts, value);
      cpu_.Unpack(got.data(), dtype, parts, before.data());
      EXPECT_EQ(Read(*device_, value, kRows * kPitch), before);
      device_->AddUnpacked(got.data(), dtype, parts.num_elements(), value);
      cpu_.AddUnpacked(got.data(), dtype, parts.num_elements(), before.data());
      EXPECT_EQ(Read(*device_, value, kRows * kPitch), before);
      Write(*device_, here, value);
    }
  }
}

TEST_F(CudaDeviceTest, RowsAreSampledAsTheirParametersSay) {
  const TinyCheckpoint checkpoint({});
  OneSequence sequence(*device_, checkpoint.dir(), DType::kF32);
  const std::vector<TokenId> prompt = {5, 9, 1, 44, 80};
  const std::vector<float> logits = sequence.Step(prompt, {0, 2, 3, 4});
  SamplingParams greedy, drawn, banned;
  greedy.temperature = banned.temperature = 0;
  drawn.seed = 7;
  drawn.num_logprobs = 2;
  const auto vocab = static_cast<size_t>(sequence.vocab());
  const auto likeliest =
      std::max_element(logits.begin() + static_cast<std::ptrdiff_t>(3 * vocab), logits.end());
  banned.banned = {
      static_cast<TokenId>(likeliest - logits.begin() - static_cast<std::ptrdiff_t>(3 * vocab))};
  banned.min_tokens = 1;
  const std::vector<SampleWork> work = {
      {0, &greedy, {}}, {1, &drawn, {prompt, {}}}, {3, &banned, {prompt, {}}}, {2, &greedy, {}}};
  std::vector<SampledToken> tokens(work.size());
  sequence.slices().Sample(work, tokens);
  for (size_t i = 0; i < work.size(); ++i) {
    std::vector<float> row(logits.begin() + static_cast<std::ptrdiff_t>(work[i].row * vocab),
                           logits.begin() + static_cast<std::ptrdiff_t>((work[i].row + 1) * vocab));
    const SampledToken expected = lamina::Sample(row, *work[i].params, work[i].context);
    EXPECT_EQ(tokens[i].token, expected.token) << i;
    EXPECT_EQ(tokens[i].logprob, expected.logprob) << i;
    EXPECT_EQ(tokens[i].top.size(), expected.top.size()) << i;
  }
  EXPECT_NE(tokens[2].token, banned.banned[0]);
}

TEST_F(CudaDeviceTest, ASequenceThatFailsLeavesTheOthersAlone) {
  const AttentionShape shape{4, 2, 8, 0.35f, 0};
  const KvShape kv{1, 2, 8, DType::kF32};
  constexpr size_t kRows = 3, kQ = 32, kK = 16;
  const TinyCheckpoint checkpoint({});
  WeightOptions weights;
  weights.model_dir = checkpoint.dir();
  // Its values are memory to work on.
  const std::unique_ptr<LoadedModel> model = *device_->Load(weights);
  const std::unique_ptr<SliceRunner> slices = *device_->MakeSlices(*model, kMaxRows);
  const Slice& slice = model->sliced.slices[0];
  float *const q = slices->value(slice.q), *const k = slices->value(slice.k),
               *const v = slices->value(slice.v);
  float* const out = slices->value(model->sliced.attentions[0].output);
  std::vector<float> values(kRows * kQ);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::cos(static_cast<float>(i));
  const std::vector<float> kv_values(values.begin(), values.begin() + kRows * kK);

  std::vector<AttentionWork> rows(kRows);  // of sequences 1, 2 and 3, of which 2 is not known
  for (size_t i = 0; i < kRows; ++i) rows[i].sequence = SequenceId{i + 1};
  const auto attended = [&](ComputeDevice& device, const float* q_of, const float* k_of,
                            const float* v_of, float* out_of) {
    std::unique_ptr<LocalKv> cache = *device.MakeKv(shape, kv, {}, 8);
    for (const uint64_t sequence : {1, 3}) {
      const auto slot = static_cast<TokenSlot>(sequence);
      EXPECT_TRUE(cache->cache().Append(SequenceId{sequence}, 0, {&slot, 1}, StepId{1}).ok());
    }
    Failures failures;
    cache->Attend({0, q_of, k_of, v_of, out_of}, StepId{1}, rows, failures);
    EXPECT_EQ(failures.size(), 1u);
    EXPECT_EQ(failures.at(SequenceId{2}).code(), StatusCode::kNotFound);
    return cache;
  };
  std::vector<float> expected(kRows * kQ);
  attended(cpu_, values.data(), kv_values.data(), kv_values.data(), expected.data());
  Write(*device_, values, q);
  Write(*device_, kv_values, k);
  Write(*device_, kv_values, v);
  const std::unique_ptr<LocalKv> cache = attended(*device_, q, k, v, out);
  const std::vector<float> got = Read(*device_, out, kRows * kQ);
  for (const size_t row : {size_t{0}, size_t{2}}) {
    for (size_t i = row * kQ; i < (row + 1) * kQ; ++i)
      ASSERT_NEAR(got[i], expected[i], 1e-6f) << "row " << row;
  }
  Failures failures;
  cache->Attend({0, q, k, v, out}, StepId{1}, rows, failures);
  EXPECT_EQ(failures.at(SequenceId{1}).code(), StatusCode::kCorrupt) << "the same token twice";
}

TEST_F(CudaDeviceTest, MadeUpTokensAreAttendedTo) {
  std::vector<TokenSlot> slots(599);
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<TokenSlot>(i);
  const TokenSlot last = 599;
  const TinyCheckpoint checkpoint({});
  WeightOptions weights;
  weights.model_dir = checkpoint.dir();
  const std::unique_ptr<LoadedModel> model = *device_->Load(weights);
  const std::unique_ptr<SliceRunner> slices = *device_->MakeSlices(*model, kMaxRows);
  const Slice& slice = model->sliced.slices[0];
  Write(*device_, std::vector<float>(32, 0.5f), slices->value(slice.q));
  Write(*device_, std::vector<float>(16, 0.5f), slices->value(slice.k));
  Write(*device_, std::vector<float>(16, 0.5f), slices->value(slice.v));
  const std::vector<AttentionWork> rows = {
      {.sequence = kSequence, .node = NodeId{}, .position = 599, .slot = last}};
  float* const out = slices->value(model->sliced.attentions[0].output);
  for (const KvShape& kv :
       {KvShape{2, 2, 8, DType::kBF16}, KvShape{2, 1, 16, DType::kF8},
        KvShape{2, 1, 16, DType::kI8Scaled}, KvShape{2, 1, 16, DType::kF8Scaled}}) {
    const AttentionShape shape{2 * kv.num_kv_heads, kv.num_kv_heads, kv.head_dim, 0.35f, 0};
    const std::unique_ptr<LocalKv> cache = *device_->MakeKv(shape, kv, {}, 600);
    EXPECT_TRUE(cache->cache().AppendDummy(kSequence, 0, slots, StepId{1}).ok());
    EXPECT_TRUE(cache->cache().Append(kSequence, 599, {&last, 1}, StepId{2}).ok());
    std::vector<std::vector<float>> outs;
    for (const int layer : {0, 1}) {
      Failures failures;
      cache->Attend(
          {layer, slices->value(slice.q), slices->value(slice.k), slices->value(slice.v), out},
          StepId{2}, rows, failures);
      EXPECT_TRUE(failures.empty());
      outs.push_back(Read(*device_, out, 32));
      for (const float x : outs.back())
        EXPECT_LT(std::abs(x), 0.2f) << "an average of 599 values around 0, and 0.5";
    }
    EXPECT_NE(outs[0], outs[1]);
  }
}

TEST_F(CudaDeviceTest, HeadsThatDoNotGoInto8BitsAreRefused) {
  for (const DType dtype : {DType::kF8, DType::kI8Scaled, DType::kF8Scaled}) {
    const Status made = device_->MakeKv({4, 2, 24, 1, 0}, {2, 2, 24, dtype}, {}, 8).status();
    EXPECT_EQ(made.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(made.message(),
                HasSubstr("head_dim 24 over K and V in " + std::string(DTypeName(dtype)) +
                          ": CUDA kernels have multiples of 16"));
  }
}

TEST_F(CudaDeviceTest, WhatDoesNotFitIsRefusedWithBothSizes) {
  const Result<std::unique_ptr<LocalKv>> kv =
      device_->MakeKv({32, 32, 128, 1, 0}, {80, 32, 128, DType::kBF16}, {}, int64_t{1} << 31);
  EXPECT_EQ(kv.status().code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(
      kv.status().message(),
      ::testing::ContainsRegex(
          "cuda:0 \\(.*\\) has [0-9.]+ GB free, and 2147483648 tokens of .* need 2814749.*GB"));
  const TinyCheckpoint checkpoint({});
  WeightOptions weights;
  weights.model_dir = checkpoint.dir();
  const std::unique_ptr<LoadedModel> model = *device_->Load(weights);
  const Result<std::unique_ptr<SliceRunner>> slices = device_->MakeSlices(*model, 1 << 30);
  EXPECT_EQ(slices.status().code(), StatusCode::kOutOfSpace) << slices.status();
}

// Tens of terabytes, which no GPU has.
TEST_F(CudaDeviceTest, AModelThatDoesNotFitIsRefusedBeforeItIsRead) {
  const TemporaryFolder folder;
  WriteFile(folder / "config.json",
            R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32000,
             "hidden_size": 65536, "intermediate_size": 1048576, "num_hidden_layers": 80,
             "num_attention_heads": 512, "max_position_embeddings": 2048, "hidden_act": "silu",
             "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "torch_dtype": "float16"})");
  WeightOptions weights;
  weights.model_dir = folder.path();
  weights.load_format = LoadFormat::kDummy;
  const Status status = device_->Load(weights).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(
      status.message(),
      ::testing::AllOf(HasSubstr("of weights for this node, and cuda:0 ("), HasSubstr("free")));
}

TEST_F(CudaDeviceTest, ProgressEndsWithAllBytes) {
  const TinyCheckpoint checkpoint({});
  WeightOptions weights;
  weights.model_dir = checkpoint.dir();
  const std::unique_ptr<LoadingModel> loading = *device_->StartLoad(weights);
  std::unique_ptr<LoadedModel> model;
  for (int64_t last = 0; model == nullptr; last = loading->progress().loaded_bytes) {
    model = *loading->Continue();
    EXPECT_GT(loading->progress().loaded_bytes, last);
  }
  EXPECT_EQ(loading->progress().loaded_bytes, loading->progress().total_bytes);
  EXPECT_EQ(model->weight_bytes, (*cpu_.Load(weights))->weight_bytes);
}

TEST_F(CudaDeviceTest, AGpuThatIsNotThereIsNamed) {
  const Status status = MakeComputeDevice(CudaGpu{1000}, team_).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("cuda:1000: no CUDA device 1000; there are 0 to "));
}

TEST(CudaDeviceWithout, AProgramOrAMachineWithoutCudaSaysSo) {
  const Result<int> count = cuda::DeviceCount();
  if (count.ok()) GTEST_SKIP() << "this machine has " << *count << " CUDA devices";
  WorkerTeam team(1);
  const Status status = MakeComputeDevice(CudaGpu{0}, team).status();
  EXPECT_EQ(status.code(), count.status().code());
  EXPECT_THAT(status.message(), HasSubstr("cuda:0: "));
}

}  // namespace
}  // namespace lamina
