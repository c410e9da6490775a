// Attention of query rows over token slots, on a CUDA device: the operation of kernels/attention.h,
// for many rows at once. Decode and prefill are the same function, and give the same bits.
//
// Batch-invariant: a row's tokens are taken in pieces of kAttentionSplitTokens, each by a block of
// threads alone, whose partial results are merged in order; so a row's result depends on its own q
// and slots only.
//
// What should bound it on an H100: 3.35 TB/s of K and V over 132 SMs are 25 GB/s each, for which
// about 20 KB must be on their way at any time (800 ns); a block keeps three tiles of 32 tokens in
// flight, four from compute capability 9.0 on (bulk asynchronous copies, tile_copies.cuh): 24 or 32
// KB with 128 dims of 16 bits, so one block on an SM would do, and several are resident. Each
// element of K and V costs `group` fused multiply-adds, with which the fp32 units could follow up
// to a group of 4; from there on tensor cores multiply (K and V of 16 bits or in FP8, head_dim a
// multiple of 16). Partial results are 1/128 (group 1) to 1/16 (group 8) of the bytes read, twice
// as much with FP8, of which twice as many tiles of half the size are on their way.
//
// K and V in FP8 are exact in fp16, and attended to as if they stood there so.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/ids.h"
#include "kernels/attention_shape.h"
#include "kernels/cuda/device.h"

namespace lamina::cuda {

// A row of 4096 tokens on 8 kv heads keeps 128 blocks busy.
inline constexpr int kAttentionSplitTokens = 256;

// The tokens of one row: slots[first_slot, first_slot + num_tokens) of the batch's slots. Rows may
// share slots; a window is fewer of them.
struct RowTokens {
  int64_t first_slot = 0;
  int64_t num_tokens = 0;  // 0: out = 0, lse = -inf
};

// Device memory, dense.
struct AttentionBatch {
  // [num_rows, num_heads, head_dim] of q_dtype, aligned to its elements.
  const void* q = nullptr;
  DType q_dtype = DType::kF32;  // not kF8, as out_dtype
  const TokenSlot* slots = nullptr;
  const RowTokens* rows = nullptr;  // [num_rows]
  int64_t num_rows = 0;
  int64_t max_tokens = 0;  // of any row; known to the host, as it sizes the launch
  void* out = nullptr;     // [num_rows, num_heads, head_dim] of out_dtype, normalised
  DType out_dtype = DType::kF32;
  // [num_rows, num_heads] natural log-sum-exp of the scaled scores; may be null.
  float* lse = nullptr;

  // Most neighbours have the same first_slot, as the rows of a prompt: those share reads of K and
  // V, up to eight queries at a time. The bits are the same either way; a batch of other rows is
  // slower with it.
  bool rows_share_slots = false;
};

// kInvalidArgument says what of the shape the kernels cannot do: head_dim is a multiple of 8 up to
// 256, of 16 for K and V in FP8; k, v and both strides of `kv` in bytes are multiples of 16. To be
// asked once, when shapes are known.
Status CheckAttention(const AttentionShape& shape, const KvView& kv);

// Scratch memory with which all rows run in one launch, and the least that is enough; rows then run
// in several.
size_t AttentionScratchBytes(const AttentionShape& shape, int64_t num_rows, int64_t max_tokens);
inline size_t LeastAttentionScratchBytes(const AttentionShape& shape, int64_t max_tokens) {
  return AttentionScratchBytes(shape, 1, max_tokens);
}

// out = softmax(scale * q k^T) v per row and head, with capped scores if shape.soft_cap says so.
// `kv` is in device memory. The scratch is in use until the stream gets there. REQUIRES:
// CheckAttention is ok, scratch of at least LeastAttentionScratchBytes.
void Attention(const AttentionShape& shape, const KvView& kv, const AttentionBatch& batch,
               const DeviceBuffer& scratch, Stream& stream);

// Merges attention over other tokens into what stands in out and lse: `more` into `out`, by
// log-sum-exp, row by row. Identity: lse == -inf. out, more: [num_rows, num_heads, head_dim]; lse,
// more_lse: [num_rows, num_heads] fp32.
struct PartialRows {
  void* out = nullptr;
  DType out_dtype = DType::kF32;
  float* lse = nullptr;  // becomes that of both
  const void* more = nullptr;
  DType more_dtype = DType::kF32;
  const float* more_lse = nullptr;
};
void MergePartials(const PartialRows& partials, int64_t num_rows, int num_heads, int head_dim,
                   Stream& stream);

}  // namespace lamina::cuda
