// Attention of query rows over token slots of a slab. Decode and prefill are the same operation:
// every query row names the sequence of token slots it looks at, so a prompt computed in chunks, a
// decode step and a recomputed sequence give the same bits.
//
// Batch-invariant: a row's result depends on its own q and slots only, not on the rows beside it,
// the team or the instruction set. Tokens are taken in order with online softmax; heads in a GQA
// group share each K row read.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/worker_team.h"
#include "kernels/attention_shape.h"

namespace lamina {

// One query row. Token i of its sequence lives in slots[i]; the row attends to tokens [0,
// num_tokens).
struct AttentionRow {
  const float* q = nullptr;          // [num_heads, head_dim]
  const TokenSlot* slots = nullptr;  // [num_tokens]
  int64_t num_tokens = 0;            // 0: out = 0, lse = -inf
  float* out = nullptr;              // [num_heads, head_dim], normalised
  // [num_heads] natural log-sum-exp of the scaled scores; may be null.
  float* lse = nullptr;
};

// Attention with a window of so many tokens, the row's own among them, is attention over the last
// ones. 0: over all.
inline std::span<const TokenSlot> InWindow(std::span<const TokenSlot> slots, int64_t window) {
  return window == 0 || std::ssize(slots) <= window ? slots
                                                    : slots.last(static_cast<size_t>(window));
}

// out = softmax(scale * q k^T) v per row and head, with capped scores if shape.soft_cap says so.
// Rows of one sequence with growing num_tokens (prefill) are best passed next to each other.
void Attention(const AttentionShape& shape, const KvView& kv, std::span<const AttentionRow> rows,
               WorkerTeam& team);

// Merges attention over keys B into attention over disjoint keys A, both normalised with their
// log-sum-exp. Identity: lse == -inf. out_a, out_b: [head_dim]. (Online softmax: Milakov &
// Gimelshein 2018; the algebra of partial attention states: FlashInfer 2025.)
void MergePartial(std::span<float> out_a, float& lse_a, std::span<const float> out_b, float lse_b);

}  // namespace lamina
