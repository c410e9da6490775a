// Attention of query rows over token slots, on a CUDA device: the operation of kernels/attention.h,
// for many rows at once. Decode and prefill are the same function, and give the same bits.
//
// Batch-invariant: a row's tokens are divided into splits of kAttentionSplitTokens, each computed
// by one block of threads, and the splits' partials are merged in order. So a row's result depends
// on its own q and slots only.
//
// What should bound it is memory. 4.8 TB/s of K and V over the 132 multiprocessors of an H200 are
// 36 GB/s each, for which about 30 KB must be in flight at any time (800 ns). A block of four warps
// has 32 KB of tiles with 128 dims (attention_split.cuh), and four blocks are resident. Tensor
// cores multiply K and V of 16 or 8 bits where head_dim is a multiple of 16, and fp32 units the
// rest. Partials are 1/256 (group 1) to 1/32 (group 8) of the bytes read, twice as much with 8
// bits. docs/cuda.md has what was measured.
//
// K and V of 8 bits are exact in fp16, and treated as fp16 would be. Their scales, if they have
// some, are multiplied with scores and weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/ids.h"
#include "kernels/attention_shape.h"
#include "kernels/cuda/device.h"

namespace lamina::cuda {

// Tokens of a split: a row of 4096 tokens on 8 kv_heads keeps 64 blocks busy. With more of them
// fewer instructions go into what each block does once, with fewer more blocks share a short batch.
inline constexpr int kAttentionSplitTokens = 512;

// The tokens that one row attends to: slots[first_slot, first_slot + num_tokens) of the batch. Rows
// may share slots. A row with a sliding window names the last of its sequence's slots only.
struct RowTokens {
  int64_t first_slot = 0;
  int64_t num_tokens = 0;  // 0: out becomes 0 and lse -inf
};

// The rows of one call. All pointers are to device memory, dense, aligned to their elements; owns
// nothing.
struct AttentionBatch {
  const void* q = nullptr;           // [num_rows, num_heads, head_dim] of q_dtype
  DType q_dtype = DType::kF32;       // not kF8
  const TokenSlot* slots = nullptr;  // [all that `rows` name]
  const RowTokens* rows = nullptr;   // [num_rows]
  int64_t num_rows = 0;
  int64_t max_tokens = 0;         // the most that any row has; the host sizes the launch by it
  void* out = nullptr;            // [num_rows, num_heads, head_dim] of out_dtype, normalised
  DType out_dtype = DType::kF32;  // not kF8
  // [num_rows, num_heads] fp32, natural log-sum-exp of the scaled (and capped) scores; may be null.
  float* lse = nullptr;

  // Set if most neighbours have the same first_slot, as the rows of a prompt have: these then share
  // reads of K and V, up to eight queries at a time. The bits are the same either way, but a batch
  // of other rows is slower with it.
  bool rows_share_slots = false;
};

// Whether the kernels can do this shape; to be asked once, when shapes are known. kInvalidArgument,
// saying what is wrong, unless num_kv_heads divides num_heads, head_dim is a multiple of 8 up to
// 256 (of 16 for K and V of 8 bits), k, v and both strides of their elements are multiples of 16
// bytes, and slots are less than 4 GiB apart.
Status CheckAttention(const AttentionShape& shape, const KvView& kv);

// The scratch memory with which all rows run in one launch. With less, down to
// LeastAttentionScratchBytes, they run in several.
size_t AttentionScratchBytes(const AttentionShape& shape, int64_t num_rows, int64_t max_tokens);
inline size_t LeastAttentionScratchBytes(const AttentionShape& shape, int64_t max_tokens) {
  return AttentionScratchBytes(shape, 1, max_tokens);
}

// Computes out = softmax(scale * q k^T) v and lse for every row and query head, with capped scores
// if shape.soft_cap is set. `kv` is in device or pinned memory. The scratch memory is in use until
// the stream has done this. REQUIRES: CheckAttention is ok, and scratch has at least
// LeastAttentionScratchBytes.
void Attention(const AttentionShape& shape, const KvView& kv, const AttentionBatch& batch,
               const DeviceBuffer& scratch, Stream& stream);

// Two sets of partials: attention of the same rows over disjoint tokens. Device memory, dense.
struct PartialRows {
  void* out = nullptr;              // [num_rows, num_heads, head_dim] of out_dtype
  DType out_dtype = DType::kF32;    // not kF8
  float* lse = nullptr;             // [num_rows, num_heads] fp32
  const void* more = nullptr;       // [num_rows, num_heads, head_dim] of more_dtype
  DType more_dtype = DType::kF32;   // not kF8
  const float* more_lse = nullptr;  // [num_rows, num_heads] fp32
};

// Merges `more` into `out`, and more_lse into lse, for every row and query head: they become what
// attention over both sets of tokens gives. lse == -inf is the identity.
void MergePartials(const PartialRows& partials, int64_t num_rows, int num_heads, int head_dim,
                   Stream& stream);

// Adds to each head of attention, `out` and `lse`, a key whose score is its sink and whose v is 0,
// as AddSink of kernels/attention.h does. out: [num_rows, num_heads, head_dim] fp32; lse:
// [num_rows, num_heads] fp32; sinks: [num_heads] fp32. Device memory, dense.
void AddSinks(float* out, const float* lse, const float* sinks, int64_t num_rows, int num_heads,
              int head_dim, Stream& stream);

}  // namespace lamina::cuda
