// The kernels that are compiled once per instruction set, and the one set that is in use. Internal
// to kernels/cpu.
//
// The files kernels_<isa>.cc instantiate the same templates for ScalarVec, Avx2Vec and Avx512Vec.
// They use no inline function of another header that is not forced inline: the linker might
// otherwise keep their copy, with instructions that another CPU lacks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/attention.h"
#include "kernels/cpu_features.h"
#include "kernels/elementwise.h"

namespace lamina {

constexpr int kPanelWidth = 16;  // outputs of a panel: one vector

// A panel's elements. bf16 lies in pairs (k, k + 1) for each output, so that a shift and a mask
// make two vectors of one load.
[[gnu::always_inline]] inline int64_t PanelElements(DType dtype, int64_t in_features) {
  return kPanelWidth * (dtype == DType::kBF16 ? (in_features + 1) / 2 * 2 : in_features);
}

struct LinearArgs {
  const void* panels;  // [ceil(out_features / 16)] panels
  DType dtype;
  int64_t out_features;
  int64_t in_features;
  const float* x;  // [rows, in_features]
  int64_t rows;
  const float* bias;  // [out_features] or null
  float* y;           // [rows, out_features]
};

// What one thread needs to run panels.
struct LinearScratch {
  // A block of x, packed: 384 KiB, to stay in an L2 of 512 KiB.
  static constexpr int64_t kXFloats = 96 * 1024;
  alignas(64) float x[kXFloats];
};

// Tokens per step of the online softmax; its bounds are multiples of this in token index.
constexpr int kTokenBlock = 256;
// Tokens of a block whose K or V is used while the next ones' is asked for: with 16 that is too
// late for a group of 4, with 64 a group of 1 is 6 % slower.
constexpr int kTokenStretch = 32;
constexpr int kMaxTaskHeads = 64;  // query heads, over all rows of a task
constexpr int kMaxHeadDim = 256;

// Rows of one sequence, or a single row, and some query heads of one kv_head: what a thread
// computes at a time.
struct AttentionTask {
  const AttentionShape* shape;
  const KvView* kv;
  const AttentionRow* rows;  // [num_rows], same slots, num_tokens not falling
  int num_rows;
  int kv_head;
  int first_head;  // query heads [first_head, first_head + num_heads), all of kv_head
  int num_heads;   // num_rows * num_heads <= kMaxTaskHeads
  // What this thread probably does next: its first keys and values are asked for while the last
  // ones of this task are used. May be null.
  const AttentionRow* next_row;
  int next_kv_head;
};

struct AttentionScratch {
  alignas(64) float q[kMaxTaskHeads * kMaxHeadDim];
  alignas(64) float out[kMaxTaskHeads * kMaxHeadDim];
  alignas(64) float scores[kMaxTaskHeads * kTokenBlock] = {};
  alignas(64) float sum[kMaxTaskHeads * 16];
  float max[kMaxTaskHeads];
  alignas(64) float correction[kMaxTaskHeads];
  float ones[kMaxTaskHeads];
  const void* kv_rows[2][kTokenStretch];  // K or V of this stretch and the next
  // Of this stretch, if its elements are widened: [kTokenStretch][head_dim].
  alignas(64) F16 widened[kTokenStretch * kMaxHeadDim];
  const void* widened_rows[kTokenStretch];  // where its rows begin

  AttentionScratch() {
    for (float& one : ones) one = 1;
  }
};

struct KernelTable {
  void (*linear)(const LinearArgs& args, int64_t panel_begin, int64_t panel_end,
                 LinearScratch& scratch);
  void (*attention)(const AttentionTask& task, AttentionScratch& scratch);
  // One row.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t dim, float* y);
  // One row.
  void (*layer_norm)(const float* x, const LayerNormWeights& weights, float eps, int64_t dim,
                     float* y);
  // One head, 2 * half elements.
  void (*rotate)(const float* x, const float* cos, const float* sin, int64_t half, float* y);
  // Up: null for ones, here and in gelu_mul.
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* y);
  void (*gelu_mul)(const float* gate, const float* up, int64_t n, float* y);
  void (*gelu)(const float* x, int64_t n, float* y);
  void (*soft_cap)(const float* x, float cap, int64_t n, float* y);
  // Y = exp((x - max) * scale), at least 1e-38.
  void (*exp_scaled)(const float* x, float max, float scale, int64_t n, float* y);
  void (*convert_from_float)(const float* x, int64_t n, DType dtype, void* y);
  void (*convert_to_float)(const void* x, DType dtype, int64_t n, float* y);
};

extern const KernelTable kScalarKernels, kAvx2Kernels, kAvx512Kernels;

const KernelTable& ActiveKernels();

}  // namespace lamina
