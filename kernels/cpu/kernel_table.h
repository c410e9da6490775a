// The kernels that are compiled once for each instruction set, as tables of functions, and the
// table that is in use. Internal to the CPU code of kernels/; others call kernels/attention.h,
// kernels/linear.h and kernels/elementwise.h.
//
// The files kernels_<isa>.cc instantiate the same templates for ScalarVec, Avx2Vec and Avx512Vec.
// They must not use an inline function of another header unless it is forced inline: the linker
// keeps one copy of such a function for the whole program, which could be one with instructions
// that this CPU lacks.
//
// All pointers are to host memory, tensors are dense and row-major. Kernels run on the calling
// thread and touch no state but their arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/attention.h"
#include "kernels/cpu_features.h"
#include "kernels/elementwise.h"
#include "kernels/weight_format.h"

namespace lamina {

constexpr int kPanelWidth = 16;  // outputs of a panel: one vector

// The number of elements of a panel of plain weights, which is [in_features, kPanelWidth]. In bf16
// it is [in_features / 2 rounded up, kPanelWidth, 2]: inputs k and k + 1 of an output lie side by
// side, so that one load, a shift and a mask give two fp32 vectors. An odd last input is followed
// by zeros.
[[gnu::always_inline]] inline int64_t PanelElements(DType dtype, int64_t in_features) {
  return kPanelWidth * (dtype == DType::kBF16 ? (in_features + 1) / 2 * 2 : in_features);
}

// A panel of codes, whose parts begin at multiples of 64 bytes and follow each other:
//   codes    of 4 bits: [in_features / 8 rounded up, kPanelWidth] u32, in each the codes of 8
//            consecutive inputs of an output, the first in the lowest bits; else [in_features
//            rounded up to 4, kPanelWidth] bytes
//   scales   [groups, kPanelWidth] of format.dtype
//   offsets  kZero: [groups, kPanelWidth] i8; kMinimum: as the scales; else nothing
// What lies behind the last input or output is zero. Where the format is indexed, [in_features] i32
// follow the last panel: the group of each input.
struct CodePanel {
  int64_t scales, offsets, size;  // bytes from its beginning

  [[gnu::always_inline]] static CodePanel Of(const WeightFormat& format, int64_t in_features) {
    const int64_t groups = format.NumGroups(in_features);
    const int64_t scale_bytes = format.dtype == DType::kF32 ? 4 : 2;
    CodePanel panel = {};
    panel.scales = HasFourBits(format.code) ? (in_features + 7) / 8 * (4 * kPanelWidth)
                                            : (in_features + 3) / 4 * (4 * kPanelWidth);
    panel.offsets = panel.scales + Whole(groups * kPanelWidth * scale_bytes);
    const int64_t offset_bytes = format.offset == WeightOffset::kZero      ? 1
                                 : format.offset == WeightOffset::kMinimum ? scale_bytes
                                                                           : 0;
    panel.size = panel.offsets + Whole(groups * kPanelWidth * offset_bytes);
    return panel;
  }

 private:
  [[gnu::always_inline]] static int64_t Whole(int64_t bytes) { return (bytes + 63) / 64 * 64; }
};

// A linear layer; Linear in kernels/linear.h says what is computed.
struct LinearArgs {
  const void* panels;  // [ceil(out_features / kPanelWidth)] panels of `format`
  WeightFormat format;
  int64_t out_features;
  int64_t in_features;
  const float* x;  // [rows, in_features] fp32
  int64_t rows;
  const float* bias;  // [out_features] fp32 or null
  float* y;           // [rows, out_features] fp32
};

// Memory that one thread needs to run panels; its contents between calls do not matter.
struct LinearScratch {
  // 384 KiB, to stay in an L2 of 512 KiB.
  static constexpr int64_t kXFloats = 96 * 1024;
  alignas(64) float x[kXFloats];  // a block of x, packed for its tiles
  // Quantized weights of a few panels as numbers. 64 KiB.
  static constexpr int64_t kWFloats = 16 * 1024;
  alignas(64) float w[kWFloats];
};

// Tokens per step of the online softmax. Steps are counted from token 0, so that a row's result
// does not depend on the other rows of its task.
constexpr int kTokenBlock = 256;
// Tokens of a block whose K or V is prefetched while those of the stretch before are used: with 16
// the prefetch comes too late for a group of 4 heads, with 64 a group of 1 is 6 % slower.
constexpr int kTokenStretch = 32;
constexpr int kMaxTaskHeads = 64;  // query heads, over all rows of a task
constexpr int kMaxHeadDim = 256;

// What a thread computes at a time: attention of a few rows of one sequence, or of a single row,
// for some of the query heads that share one kv_head. Borrows everything.
struct AttentionTask {
  const AttentionShape* shape;
  const KvView* kv;
  const AttentionRow* rows;  // [num_rows], same slots, num_tokens not falling
  int num_rows;
  int kv_head;
  int first_head;  // query heads [first_head, first_head + num_heads), all of kv_head
  int num_heads;   // num_rows * num_heads <= kMaxTaskHeads
  // The row and kv_head that this thread probably takes next: its first keys are prefetched while
  // the last values of this task are used. May be null. It never changes a result.
  const AttentionRow* next_row;
  int next_kv_head;
};

// Memory that one thread needs for attention; a task leaves nothing in it for the next one. A
// task's heads are those of its first row, then of its second, and so on. stride is head_dim
// rounded up to a multiple of 16.
struct AttentionScratch {
  // Scaled queries: for each group of heads that share a tile [stride / 16, heads, 16].
  alignas(64) float q[kMaxTaskHeads * kMaxHeadDim];
  // Outputs before they are divided by `sum`: [heads, stride].
  alignas(64) float out[kMaxTaskHeads * kMaxHeadDim];
  // Scores of a block, then exp(score - max): [heads, kTokenBlock]. Initialised because whole
  // vectors are read; what lies beyond the last token is masked.
  alignas(64) float scores[kMaxTaskHeads * kTokenBlock] = {};
  // The sum of all weights so far in 16 partial sums: [heads, 16].
  alignas(64) float sum[kMaxTaskHeads * 16];
  float max[kMaxTaskHeads];                     // the largest score so far
  alignas(64) float correction[kMaxTaskHeads];  // exp(the max before this block - max)
  float ones[kMaxTaskHeads];                    // the correction where there is none
  const void* kv_rows[2][kTokenStretch];        // rows of K or V of this stretch and of the next
  // This stretch, if its elements are widened: [kTokenStretch, head_dim] of F16 or float.
  alignas(64) std::byte widened[kTokenStretch * kMaxHeadDim * sizeof(float)];
  const void* widened_rows[kTokenStretch];  // where the rows of `widened` begin
  // Scales of K or V of this stretch and of the next. Initialised because whole vectors are read.
  alignas(64) float scales[2][kTokenStretch] = {};

  AttentionScratch() {
    for (float& one : ones) one = 1;
  }
};

// The kernels for one instruction set. Formulas, and which arrays may be the same, are those of
// kernels/elementwise.h.
struct KernelTable {
  // Computes the outputs of panels [panel_begin, panel_end) for all rows.
  void (*linear)(const LinearArgs& args, int64_t panel_begin, int64_t panel_end,
                 LinearScratch& scratch);
  // Computes out and lse of the task's rows, for its query heads.
  void (*attention)(const AttentionTask& task, AttentionScratch& scratch);
  // One row. x, y: [dim]; weight: [dim] or null.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t dim, float* y);
  // One row. x, y: [dim].
  void (*layer_norm)(const float* x, const LayerNormWeights& weights, float eps, int64_t dim,
                     float* y);
  // Rotates the pairs (j, j + half) of one head. x, y: [2 * half]; cos, sin: [half].
  void (*rotate)(const float* x, const float* cos, const float* sin, int64_t half, float* y);
  // All arrays are [n]. `up` may be null, which means ones.
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* y);
  void (*gelu_mul)(const float* gate, const float* up, int64_t n, float* y);
  // All arrays are [n].
  void (*swiglu_oai)(const float* gate, const float* up, float limit, int64_t n, float* y);
  // All arrays are [n].
  void (*gelu)(const float* x, int64_t n, float* y);
  void (*soft_cap)(const float* x, float cap, int64_t n, float* y);
  // y = exp((x - max) * scale), but at least 1e-38. x, y: [n]; y may be x.
  void (*exp_scaled)(const float* x, float max, float scale, int64_t n, float* y);
  // x, y: [n]; the untyped one is of `dtype`.
  void (*convert_from_float)(const float* x, int64_t n, DType dtype, void* y);
  void (*convert_to_float)(const void* x, DType dtype, int64_t n, float* y);
  // RoundWithScale of kernels/kv_rows.h. x: [n]; codes: [n] of `dtype`.
  float (*round_with_scale)(const float* x, int64_t n, DType dtype, void* codes);
};

extern const KernelTable kScalarKernels, kAvx2Kernels, kAvx512Kernels;

// The table for ActiveCpuIsa(). Thread: any.
const KernelTable& ActiveKernels();

}  // namespace lamina
