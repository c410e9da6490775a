// Linear layers on the CPU: y = x W^T + b with weights stored in 16 or 32 bits, or quantized, and
// fp32 accumulation. Weights are packed once when the model is loaded, then used by any number of
// calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/dtype.h"
#include "base/worker_team.h"
#include "kernels/weight_format.h"

namespace lamina {

// The weights of one linear layer in the order in which the kernels read them: panels of 16
// consecutive outputs, and in a panel one input after the other. Every instruction set reads the
// same layout. Owns its memory, unless that is told. Immutable but for PointTo; Thread: any.
class PackedWeights {
 public:
  // Copies `weights`, [out_features, in_features] of `dtype`, row-major, which need not be aligned.
  // Every bit is kept. Runs on `team`. Aborts the process if there is no memory for the copy.
  // REQUIRES: `dtype` is not for the KV cache only.
  PackedWeights(const void* weights, DType dtype, int64_t out_features, int64_t in_features,
                WorkerTeam& team);
  // Packs quantized weights. Aborts as above. REQUIRES: the matrix's arrays have the sizes that its
  // format and its features say, group_of is within the groups, and the format's group is a
  // multiple of 8.
  PackedWeights(const QuantizedMatrix& matrix, WorkerTeam& team);
  // Panels that were packed before: `read` writes bytes [begin, end) of them to `to`. It is called
  // on `team` for all pieces. Aborts as above.
  PackedWeights(const WeightFormat& format, int64_t out_features, int64_t in_features,
                WorkerTeam& team,
                const std::function<void(int64_t begin, int64_t end, std::byte* to)>& read);
  // Weights whose panels lie in somebody else's memory, which PointTo names before they are used.
  PackedWeights(const WeightFormat& format, int64_t out_features, int64_t in_features);
  ~PackedWeights();
  PackedWeights(PackedWeights&&) noexcept;
  PackedWeights& operator=(PackedWeights&&) noexcept;

  // What the panels of such a layer take.
  static int64_t SizeBytes(const WeightFormat& format, int64_t out_features, int64_t in_features);

  // REQUIRES: the weights own no memory.
  void PointTo(const void* panels) { data_ = panels; }

  int64_t out_features() const { return out_features_; }
  int64_t in_features() const { return in_features_; }
  const WeightFormat& format() const { return format_; }
  // The panels, [ceil(out_features / 16)] of them, zero where there are no such outputs, with all
  // that belongs to them in one piece.
  const void* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  void Allocate();

  const void* data_ = nullptr;
  void* own_ = nullptr;  // in huge pages if large
  int64_t size_bytes_ = 0;
  int64_t out_features_ = 0;
  int64_t in_features_ = 0;
  WeightFormat format_ = DType::kBF16;
};

// y[r, o] = sum_i x[r, i] w[o, i] (+ bias[o]), where quantized weights are the numbers that
// weight_format.h says. Each sum is formed in the order i = 0, 1, 2, ... by
// fused multiply-add, and the bias is added last, whatever the number of rows, the instruction set
// and the number of threads: batch-invariant, and equal bit for bit to the reference. x: [rows,
// in_features] fp32; bias: [out_features] fp32 or null; y: [rows, out_features] fp32, no overlap
// with x. Thread: the owner of `team`.
void Linear(const PackedWeights& weights, const float* x, int64_t rows, const float* bias, float* y,
            WorkerTeam& team);

}  // namespace lamina
