// Attention of query rows over token slots of a slab. Decode and prefill are the same operation: every query row names the sequence of
// token slots it looks at, so a prompt computed in chunks, a decode step and a recomputed sequence give the same bits.
//
// Batch-invariant: a row's result depends on its own q and slots only, not on the rows beside it, the team or the instruction set. Tokens
// are taken in order with online softmax; heads in a GQA group share each K row read.
#pragma once

#include <cstdint>
#include <span>

#include "base/float16.h"
#include "base/ids.h"
#include "base/worker_team.h"

namespace lamina {

struct AttentionShape {
  int num_heads = 0;     // query heads
  int num_kv_heads = 0;  // divides num_heads
  int head_dim = 0;      // multiple of 8, at most 256
  float scale = 0;       // usually 1/sqrt(head_dim)
  float soft_cap = 0;    // scaled scores s become soft_cap * tanh(s / soft_cap); 0: they stay

  int group() const { return num_heads / num_kv_heads; }
};

// One layer of a slab of token slots, as a kernel sees it. Strides in elements.
// k(kv_head, slot) = k + kv_head * head_stride + slot * slot_stride, [head_dim] of `dtype`; v likewise.
struct KvView {
  const void* k = nullptr;
  const void* v = nullptr;
  int64_t head_stride = 0;
  int64_t slot_stride = 0;
  DType dtype = DType::kBF16;  // kF32 | kBF16 | kF16
};

// One query row. Token i of its sequence lives in slots[i]; the row attends to tokens [0, num_tokens).
struct AttentionRow {
  const float* q = nullptr;          // [num_heads, head_dim]
  const TokenSlot* slots = nullptr;  // [num_tokens]
  int64_t num_tokens = 0;            // 0: out = 0, lse = -inf
  float* out = nullptr;              // [num_heads, head_dim], normalised
  float* lse = nullptr;              // [num_heads] natural log-sum-exp of the scaled scores; may be null
};

// Attention with a window of so many tokens, the row's own among them, is attention over the last ones. 0: over all.
inline std::span<const TokenSlot> InWindow(std::span<const TokenSlot> slots, int64_t window) {
  return window == 0 || std::ssize(slots) <= window ? slots : slots.last(static_cast<size_t>(window));
}

// out = softmax(scale * q k^T) v per row and head, with capped scores if shape.soft_cap says so. Rows of one sequence with growing
// num_tokens (prefill) are best passed next to each other.
void Attention(const AttentionShape& shape, const KvView& kv, std::span<const AttentionRow> rows, WorkerTeam& team);

// Merges attention over keys B into attention over disjoint keys A, both normalised with their log-sum-exp. Identity: lse == -inf.
// out_a, out_b: [head_dim]. (Online softmax: Milakov & Gimelshein 2018; the algebra of partial attention states: FlashInfer 2025.)
void MergePartial(std::span<float> out_a, float& lse_a, std::span<const float> out_b, float lse_b);

}  // namespace lamina
