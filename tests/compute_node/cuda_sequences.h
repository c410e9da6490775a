// What the tests of a GPU as a compute device share: one sequence through the slices of a model, on
// any device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compute_node/compute_device.h"
#include "compute_node/local_attention.h"
#include "compute_node/make_compute_device.h"
#include "kernels/cuda/device.h"

namespace lamina {
namespace cuda_device_test {

constexpr int kMaxRows = 8;
constexpr SequenceId kSequence{1};

// Of a logit, against the largest one of its row. Linear layers take x in two parts of 16 bits
// together, and their sums in another order than the CPU's: 2^-16 each, which a few layers carry
// on.
constexpr float kLogitTolerance = 1e-3f;

inline AttentionShape ShapeOf(const SlicedModel& model) {
  const Op& first = model.attentions[0];
  return {first.num_heads, first.num_kv_heads, first.head_dim, first.scale, first.soft_cap};
}

inline KvShape KvOf(const SlicedModel& model, DType dtype) {
  const Op& first = model.attentions[0];
  return {static_cast<int>(model.attentions.size()), first.num_kv_heads, first.head_dim, dtype};
}

// n elements of a value, on this host.
inline std::vector<float> Read(ComputeDevice& device, const float* value, int64_t n) {
  std::vector<float> read(static_cast<size_t>(n));
  const PackedParts packed{value, RowParts::Whole(n), DType::kF32};
  EXPECT_EQ(device.Pack({&packed, 1}, reinterpret_cast<std::byte*>(read.data())),
            reinterpret_cast<std::byte*>(read.data() + read.size()));
  return read;
}

inline void Write(ComputeDevice& device, const std::vector<float>& values, float* value) {
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

inline void ExpectNear(const std::vector<float>& got, const std::vector<float>& expected,
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

}  // namespace cuda_device_test
}  // namespace lamina
