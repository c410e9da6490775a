// Weights and layers of a KV cache outside a GPU's memory: the same bits as inside. Without a GPU
// these tests run in builds whose kernels are emulated (docs/cuda.md).
#include "kernels/cuda/device.h"
#if LAMINA_HAS_CUDA
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <random>

#include "compute_node/cuda/cuda_weights.h"
#include "cuda_sequences.h"
#include "tests/kernels/cuda_cases.h"
#include "tests/support/gguf_models.h"
#include "tests/support/golden_prompts.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace cuda_device_test {

using ::testing::HasSubstr;

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

}  // namespace cuda_device_test
}  // namespace lamina
#endif
