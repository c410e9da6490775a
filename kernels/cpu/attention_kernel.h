// Attention of one task, written once over `class V`.
//
// Tokens are taken in blocks of kTokenBlock, counted from token 0. Per block: K is transposed so that a vector holds 16 tokens and every
// score is a sum over dimensions 0, 1, 2, ...; the softmax goes on online (Milakov & Gimelshein 2018); the block's weighted V is summed
// token by token and then added to the rescaled output. No lane ever mixes rows, heads or tokens, so how many of them share a block does
// not show in the bits.
#pragma once

#include <math.h>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd_math.h"

namespace lamina {

// How many heads and how many vectors a tile of scores or outputs holds in registers.
template <class V>
struct HeadTiles {
  static constexpr int kMaxHeads = 4;
  static constexpr int Vectors(int heads) { return V::kRegisters >= 32 ? 4 : heads == 1 ? 4 : heads <= 3 ? 2 : 1; }
};

constexpr int kTokenVectors = kTokenBlock / 16;

// scores[h][tokens] += sum over d of q[h][d] * keys[d][tokens], for kHeads heads and kVectors vectors of tokens.
template <class V, int kHeads, int kVectors>
LAMINA_SIMD void ScoreTile(const float* q, int64_t q_stride, const float* keys, int dims, float* scores) {
  V sum[kHeads][kVectors];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[h][v] = V::Load(scores + h * kTokenBlock + v * 16);
  }
  for (int d = 0; d < dims; ++d, keys += kTokenBlock) {
    V key[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) key[v] = V::Load(keys + v * 16);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const V qh = V::Set(q[h * q_stride + d]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[h][v] = Fma(qh, key[v], sum[h][v]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[h][v].Store(scores + h * kTokenBlock + v * 16);
  }
}

template <class V, int kHeads>
[[gnu::noinline]] void ScoreHeads(const float* q, int64_t q_stride, const float* keys, int dims, float* scores) {
  constexpr int kVectors = HeadTiles<V>::Vectors(kHeads);
  for (int v = 0; v < kTokenVectors; v += kVectors) ScoreTile<V, kHeads, kVectors>(q, q_stride, keys + v * 16, dims, scores + v * 16);
}

// Asks for `n` elements of a row of K or V ahead of their use: blocks are read column by column, which no hardware prefetcher follows.
template <typename T>
LAMINA_SIMD void Prefetch(const T* row, int n) {
  const char* p = reinterpret_cast<const char*>(row);
  for (int i = 0; i < static_cast<int>(sizeof(T)) * n; i += 64) __builtin_prefetch(p + i);
}

// A block's V rows and what they are weighted with.
template <typename T>
struct ValueBlock {
  const T* const* rows;
  int num_tokens;
  int head_dim;
  const float* weights;       // [heads][kTokenBlock]
  const float* correction;    // [heads]
  const T* const* next_keys;  // rows of the next block, to prefetch one per token; may be null
};

// out[h][dims] = out[h][dims] * correction[h] + sum over tokens of weights[h][t] * rows[t][dims], for kVectors vectors from `dim` on. With
// `half` the one vector has 8 dimensions.
template <class V, typename T, int kHeads, int kVectors, bool kHalf>
LAMINA_SIMD void ValueTile(const ValueBlock<T>& block, int dim, float* out, int64_t out_stride) {
  V sum[kHeads][kVectors];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[h][v] = V::Zero();
  }
  for (int t = 0; t < block.num_tokens; ++t) {
    const T* row = block.rows[t] + dim;
    if (block.next_keys != nullptr) Prefetch(block.next_keys[t] + dim, 16 * kVectors);
    V value[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) value[v] = kHalf ? V::LoadHalf(row) : V::Load(row + v * 16);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const V weight = V::Set(block.weights[h * kTokenBlock + t]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[h][v] = Fma(weight, value[v], sum[h][v]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* to = out + h * out_stride + dim + v * 16;
      Fma(V::Load(to), V::Set(block.correction[h]), sum[h][v]).Store(to);
    }
  }
}

template <class V, typename T, int kHeads>
[[gnu::noinline]] void ValueHeads(const ValueBlock<T>& block, float* out, int64_t out_stride) {
  constexpr int kVectors = HeadTiles<V>::Vectors(kHeads);
  int dim = 0;
  for (; dim + 16 * kVectors <= block.head_dim; dim += 16 * kVectors) ValueTile<V, T, kHeads, kVectors, false>(block, dim, out, out_stride);
  if constexpr (kVectors > 2) {
    for (; dim + 32 <= block.head_dim; dim += 32) ValueTile<V, T, kHeads, 2, false>(block, dim, out, out_stride);
  }
  for (; dim + 16 <= block.head_dim; dim += 16) ValueTile<V, T, kHeads, 1, false>(block, dim, out, out_stride);
  if (dim < block.head_dim) ValueTile<V, T, kHeads, 1, true>(block, dim, out, out_stride);
}

template <int kHeads>
struct HeadCount {};

// Calls f(HeadCount<n>, first head) for `heads` heads in groups of at most kMaxHeads that differ by one at most.
template <class V, class F>
LAMINA_SIMD void ForHeadGroups(int heads, const F& f) {
  static_assert(HeadTiles<V>::kMaxHeads == 4);
  const int groups = (heads + 3) / 4;
  for (int i = 0; i < groups; ++i) {
    const int first = heads * i / groups;
    switch (heads * (i + 1) / groups - first) {
      case 1: f(HeadCount<1>(), first); break;
      case 2: f(HeadCount<2>(), first); break;
      case 3: f(HeadCount<3>(), first); break;
      default: f(HeadCount<4>(), first); break;
    }
  }
}

// Scores of one head become weights exp(score - max); max, sum and the correction of what came before move on. `tokens` of the block count.
template <class V>
LAMINA_SIMD void SoftmaxStep(int tokens, float* scores, float& max, float* sum, float& correction) {
  const V minus_infinity = V::Set(-__builtin_inff());
  V score[kTokenVectors];
  V block_max = V::Set(max);
#pragma GCC unroll 4
  for (int v = 0; v < kTokenVectors; ++v) {
    score[v] = V::FirstOf(tokens - v * 16, V::Load(scores + v * 16), minus_infinity);
    block_max = Max(score[v], block_max);  // a NaN score loses here and shows as exp(NaN)
  }
  const float new_max = block_max.MaxLanes();
  correction = Exp(V::Set(max - new_max)).First();  // the first block: exp(-inf), of an output and a sum that are 0
  max = new_max;
#pragma GCC unroll 4
  for (int v = 0; v < kTokenVectors; ++v) {
    score[v] = V::FirstOf(tokens - v * 16, Exp(score[v] - V::Set(new_max)), V::Zero());
    score[v].Store(scores + v * 16);
  }
  Fma(V::Load(sum), V::Set(correction), (score[0] + score[1]) + (score[2] + score[3])).Store(sum);
}

template <class V, typename T>
struct AttentionRun {
  const AttentionTask& task;
  AttentionScratch& s;
  int64_t stride;  // from one head's q or output to the next in the scratch
  const T* k;      // of this kv_head
  const T* v;
  const T** k_rows;  // of the block's tokens
  const T** v_rows;
  const T** next_k_rows;
  const T** next_v_rows;

  LAMINA_SIMD int TokensOfRow(int row, int64_t block_begin) const {
    const int64_t left = task.rows[row].num_tokens - block_begin;
    return static_cast<int>(left < kTokenBlock ? left : kTokenBlock);
  }

  LAMINA_SIMD void Start() {
    const int64_t head_dim = task.shape->head_dim;
    for (int h = 0; h < task.num_rows * task.num_heads; ++h) {
      const float* q = task.rows[h / task.num_heads].q + (task.first_head + h % task.num_heads) * head_dim;
      for (int64_t d = 0; d < head_dim; ++d) s.q[h * stride + d] = q[d] * task.shape->scale;
      for (int64_t d = 0; d < stride; ++d) s.out[h * stride + d] = 0;
      V::Zero().Store(s.sum + h * 16);
      s.max[h] = -__builtin_inff();
    }
  }

  // Rows of the next block's tokens; beyond the last one its row again, so that whole vectors can be read. What comes of that is masked.
  LAMINA_SIMD void FindNextRows(int64_t block_begin, int tokens) {
    const TokenSlot* slots = task.rows[task.num_rows - 1].slots + block_begin;
    for (int t = 0; t < kTokenBlock; ++t) {
      const int64_t at = task.kv->slot_stride * static_cast<int64_t>(slots[t < tokens ? t : tokens - 1]);
      next_k_rows[t] = k + at;
      next_v_rows[t] = v + at;
    }
  }

  LAMINA_SIMD void Score(int first_row, int tokens) {
    const int first = first_row * task.num_heads, heads = task.num_rows * task.num_heads - first;
    for (int i = 0; i < heads * kTokenBlock; i += 16) V::Zero().Store(s.scores + first * kTokenBlock + i);
    const int head_dim = task.shape->head_dim;
    for (int dim = 0; dim < head_dim; dim += AttentionScratch::kKeyDims) {
      const int dims = head_dim - dim < AttentionScratch::kKeyDims ? head_dim - dim : AttentionScratch::kKeyDims;
      for (int t = 0; t < tokens; t += 16) {
        for (int i = t; i < t + 16; ++i) Prefetch(v_rows[i] + dim, dims);
        int d = 0;
        for (; d + 16 <= dims; d += 16) V::LoadTransposed(k_rows + t, dim + d, 16, s.keys + d * kTokenBlock + t);
        if (d < dims) V::LoadTransposed(k_rows + t, dim + d, 8, s.keys + d * kTokenBlock + t);
      }
      ForHeadGroups<V>(heads, [&]<int kHeads>(HeadCount<kHeads>, int h) {
        ScoreHeads<V, kHeads>(s.q + (first + h) * stride + dim, stride, s.keys, dims, s.scores + (first + h) * kTokenBlock);
      });
    }
  }

  LAMINA_SIMD void AddValues(int first_head, int heads, int tokens, bool prefetch) {
    ForHeadGroups<V>(heads, [&]<int kHeads>(HeadCount<kHeads>, int h) {
      const int head = first_head + h;
      const ValueBlock<T> block = {v_rows,
                                   tokens,
                                   task.shape->head_dim,
                                   s.scores + head * kTokenBlock,
                                   s.correction + head,
                                   prefetch && h == 0 ? next_k_rows : nullptr};
      ValueHeads<V, T, kHeads>(block, s.out + head * stride, stride);
    });
  }

  // REQUIRES: the next rows are those of this block.
  LAMINA_SIMD void Block(int64_t block_begin) {
    const int tokens = TokensOfRow(task.num_rows - 1, block_begin);
    const int next_tokens = TokensOfRow(task.num_rows - 1, block_begin + kTokenBlock);
    int first_row = 0;
    while (task.rows[first_row].num_tokens <= block_begin) ++first_row;
    SwapRows();
    Score(first_row, tokens);
    for (int h = first_row * task.num_heads; h < task.num_rows * task.num_heads; ++h) {
      SoftmaxStep<V>(TokensOfRow(h / task.num_heads, block_begin), s.scores + h * kTokenBlock, s.max[h], s.sum + h * 16, s.correction[h]);
    }
    if (next_tokens > 0) FindNextRows(block_begin + kTokenBlock, next_tokens);
    // Rows that end within the block go alone, so that no row reads V of a token it does not attend to (0 * NaN is NaN).
    int row = first_row;
    for (; TokensOfRow(row, block_begin) < tokens; ++row) {
      AddValues(row * task.num_heads, task.num_heads, TokensOfRow(row, block_begin), false);
    }
    AddValues(row * task.num_heads, (task.num_rows - row) * task.num_heads, tokens, next_tokens > 0);
  }

  LAMINA_SIMD void SwapRows() {
    const T **k = k_rows, **v = v_rows;
    k_rows = next_k_rows;
    v_rows = next_v_rows;
    next_k_rows = k;
    next_v_rows = v;
  }

  LAMINA_SIMD void Finish() {
    const int64_t head_dim = task.shape->head_dim;
    for (int h = 0; h < task.num_rows * task.num_heads; ++h) {
      const AttentionRow& row = task.rows[h / task.num_heads];
      const int head = task.first_head + h % task.num_heads;
      const float sum = V::Load(s.sum + h * 16).SumLanes();
      const bool empty = row.num_tokens == 0;
      for (int64_t d = 0; d < head_dim; ++d) row.out[head * head_dim + d] = empty ? 0 : s.out[h * stride + d] / sum;
      if (row.lse != nullptr) row.lse[head] = empty ? -__builtin_inff() : static_cast<float>(s.max[h] + log(static_cast<double>(sum)));
    }
  }
};

template <class V, typename T>
void AttendOf(const AttentionTask& task, AttentionScratch& s) {
  const KvView& kv = *task.kv;
  const int64_t head = task.kv_head * kv.head_stride;
  AttentionRun<V, T> run = {task,
                            s,
                            (task.shape->head_dim + 15) / 16 * 16,
                            static_cast<const T*>(kv.k) + head,
                            static_cast<const T*>(kv.v) + head,
                            reinterpret_cast<const T**>(s.k_rows[0]),
                            reinterpret_cast<const T**>(s.v_rows[0]),
                            reinterpret_cast<const T**>(s.k_rows[1]),
                            reinterpret_cast<const T**>(s.v_rows[1])};
  run.Start();
  const int64_t num_tokens = task.rows[task.num_rows - 1].num_tokens;
  if (num_tokens > 0) run.FindNextRows(0, run.TokensOfRow(task.num_rows - 1, 0));
  for (int64_t begin = 0; begin < num_tokens; begin += kTokenBlock) run.Block(begin);
  run.Finish();
}

template <class V>
void Attend(const AttentionTask& task, AttentionScratch& scratch) {
  switch (task.kv->dtype) {
    case DType::kF32: return AttendOf<V, float>(task, scratch);
    case DType::kBF16: return AttendOf<V, BF16>(task, scratch);
    case DType::kF16: return AttendOf<V, F16>(task, scratch);
  }
}

}  // namespace lamina
