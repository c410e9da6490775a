// y = x W^T + b with weights stored in 16 bits (or 32) and fp32 accumulation.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/dtype.h"
#include "base/worker_team.h"

namespace lamina {

// Weights rearranged once at load for the kernel that this CPU gets: panels of consecutive outputs,
// inputs within. Immutable.
class PackedWeights {
 public:
  // `weights`: [out_features, in_features] of `dtype`, row-major, need not be aligned. Packs with
  // `team`. bf16 and fp32 keep every bit, fp16 too. REQUIRES: not kF8.
  PackedWeights(const void* weights, DType dtype, int64_t out_features, int64_t in_features,
                WorkerTeam& team);
  ~PackedWeights();
  PackedWeights(PackedWeights&&) noexcept;
  PackedWeights& operator=(PackedWeights&&) noexcept;

  int64_t out_features() const { return out_features_; }
  int64_t in_features() const { return in_features_; }
  DType dtype() const { return dtype_; }
  const void* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  void* data_ = nullptr;  // in huge pages if large
  int64_t size_bytes_ = 0;
  int64_t out_features_ = 0;
  int64_t in_features_ = 0;
  DType dtype_ = DType::kBF16;
};

// y[r, o] = sum_i x[r, i] w[o, i] (+ bias[o]), each sum in the order i = 0, 1, 2, ... by fused
// multiply-add, whatever the number of rows, the instruction set and the number of threads:
// batch-invariant, and equal bit for bit to the reference. x: [rows, in_features] fp32; bias:
// [out_features] fp32 or null; y: [rows, out_features] fp32, no overlap with x.
void Linear(const PackedWeights& weights, const float* x, int64_t rows, const float* bias, float* y,
            WorkerTeam& team);

}  // namespace lamina
