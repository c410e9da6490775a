// Attention of query rows over token slots of a slab, on the CPU; kernels/cuda/attention.h is its
// counterpart for GPUs. Decode and prefill are the same operation: every query row names the token
// slots that it attends to, so a prompt computed in chunks, a decode step and a recomputed sequence
// give the same bits.
//
// Batch-invariant: a row's result depends on its own q and slots only, not on the rows beside it,
// the team or the instruction set. Tokens are taken in order with an online softmax; the query
// heads of a GQA group share each read of K and V.
#pragma once

#include <cstdint>
#include <span>

#include "base/attention_window.h"
#include "base/ids.h"
#include "base/worker_team.h"
#include "kernels/attention_shape.h"

namespace lamina {

// One query row: a token of a sequence with all its query heads. Token i of the sequence lives in
// slots[i]; the row attends to tokens [0, num_tokens). Borrows everything.
struct AttentionRow {
  const float* q = nullptr;          // [num_heads, head_dim] fp32
  const TokenSlot* slots = nullptr;  // [num_tokens]
  int64_t num_tokens = 0;            // 0: out becomes 0 and lse -inf
  float* out = nullptr;              // [num_heads, head_dim] fp32, normalised
  // [num_heads] fp32, natural log-sum-exp of the scaled (and capped) scores; may be null.
  float* lse = nullptr;
};

// Returns those of `slots` that a row attends to in a layer with this window. `slots` are those of
// all tokens up to the row's own. REQUIRES: there is one.
inline std::span<const TokenSlot> InWindow(std::span<const TokenSlot> slots,
                                           const AttentionWindow& window) {
  return slots.last(static_cast<size_t>(window.NumAttended(std::ssize(slots) - 1)));
}

// Computes out = softmax(scale * q k^T) v and lse for every row and query head, with capped scores
// if shape.soft_cap is set (online softmax: Milakov & Gimelshein 2018). Neighbours in `rows` that
// name the same slots with num_tokens not falling, as the rows of a prefill do, share reads of K
// and V. Thread: the owner of `team`. REQUIRES: every slot is in the slab that `kv` shows.
void Attention(const AttentionShape& shape, const KvView& kv, std::span<const AttentionRow> rows,
               WorkerTeam& team);

// Merges the partial over keys B into the partial over disjoint keys A: out_a and lse_a become what
// attention over both gives. Outputs are normalised, log-sum-exps natural; lse == -inf is the
// identity. out_a, out_b: [head_dim] fp32. (The algebra of partial attention states: Ye et al.,
// FlashInfer, 2025.) Thread: any.
void MergePartial(std::span<float> out_a, float& lse_a, std::span<const float> out_b, float lse_b);

// Adds a key with the score `sink` and a v of 0 to attention over other keys, `out` and `lse`. The
// numbers are those of merging it into a sink's own partial, an `out` of 0 and an lse of `sink`.
// out: [head_dim] fp32. (Xiao et al., Efficient Streaming Language Models with Attention Sinks,
// 2024, section 3.3.) Thread: any.
void AddSink(std::span<float> out, float lse, float sink);

}  // namespace lamina
