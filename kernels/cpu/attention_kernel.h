// Attention of one task (AttentionTask in kernel_table.h), written once over `class V`.
//
// Tokens are taken in blocks of kTokenBlock, counted from token 0: first all keys of a block, then,
// after a step of the online softmax (Milakov & Gimelshein 2018), all its values, each as long a
// stream of memory as the sequence's runs of slots allow. Both go in stretches of kTokenStretch
// tokens that stay in L1 for all heads of the task, and while one is used the next is prefetched.
// attention_tiles.h says what is added up in which order.
#pragma once

#include <math.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd_math.h"

namespace lamina {

// The largest of `max` and the scores of `tokens` tokens. scores: [tokens rounded up to 16].
template <class V>
LAMINA_SIMD float MaxScore(const float* scores, int tokens, float max) {
  V largest = V::Set(max);
  int t = 0;
  // Max gives its second operand where the first is NaN: a NaN score is passed over here, and still
  // makes the output NaN by exp(NaN).
  for (; t + 16 <= tokens; t += 16) largest = Max(V::Load(scores + t), largest);
  if (t < tokens) largest = Max(V::FirstOf(tokens - t, V::Load(scores + t), largest), largest);
  return largest.MaxLanes();
}

// Caps the scores of `tokens` tokens, rounded up to whole vectors.
template <class V>
LAMINA_SIMD void CapScores(float cap, int tokens, float* scores) {
  for (int t = 0; t < tokens; t += 16)
    SoftCapped(V::Load(scores + t), V::Set(cap)).Store(scores + t);
}

// Replaces 64 scores by weights exp(score - max), those beyond the first `tokens` by 0 unless kAll
// is set. Returns the sum of the weights in 16 partial sums. scores: [64].
template <class V, bool kAll>
LAMINA_SIMD V WeightsOf64(V max, int tokens, float* scores) {
  V weight[4];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    weight[v] = Exp(V::Load(scores + v * 16) - max);
    if constexpr (!kAll) weight[v] = V::FirstOf(tokens - v * 16, weight[v], V::Zero());
    weight[v].Store(scores + v * 16);
  }
  return (weight[0] + weight[1]) + (weight[2] + weight[3]);
}

// Replaces the scores of one head's tokens of a block by weights: sum = sum * correction + the
// weights. scores: [kTokenBlock]; sum: [16], partial sums.
template <class V>
LAMINA_SIMD void WeightsOfScores(int tokens, float max, float correction, float* scores,
                                 float* sum) {
  const V max_of_all = V::Set(max);
  V total = V::Load(sum) * V::Set(correction);
  int t = 0;
  for (; t + 64 <= tokens; t += 64)
    total = total + WeightsOf64<V, true>(max_of_all, 64, scores + t);
  if (t < tokens) total = total + WeightsOf64<V, false>(max_of_all, tokens - t, scores + t);
  total.Store(sum);
}

// One task with a cache of elements T. C is the type that the tiles read: T, or a wider type that a
// stretch is converted to once for all heads of the task. kScaled: elements are codes, which the
// tiles take for numbers; scores are multiplied by the scale of K, and weights, once they are
// summed up, by that of V.
//
// The rows of K or V that are used and those that are prefetched take turns in two arrays: a
// Find...Ahead looks up the next stretch, and NextStretch makes it the one in use.
template <class V, typename T, typename C, bool kScaled>
struct AttentionRun {
  static constexpr bool kWidens = !std::is_same_v<C, T>;

  const AttentionTask& task;
  AttentionScratch& s;
  int64_t stride;   // from one head's q or output to the next in the scratch, in elements
  const T** rows;   // [kTokenStretch], K or V of the stretch in use
  const T** ahead;  // [kTokenStretch], K or V of the next stretch
  const C** used;   // [kTokenStretch], `rows` or where they are widened
  // [kTokenStretch], the scales that belong to `rows` and to `ahead`.
  float* scales;
  float* scales_ahead;
  int num_ahead = 0;  // tokens of the next stretch

  LAMINA_SIMD int NumHeads() const { return task.num_rows * task.num_heads; }
  LAMINA_SIMD int64_t NumTokens() const { return task.rows[task.num_rows - 1].num_tokens; }

  // How many tokens of a row are in [begin, begin + size).
  LAMINA_SIMD int TokensIn(const AttentionRow& row, int64_t begin, int size) const {
    const int64_t left = row.num_tokens - begin;
    return static_cast<int>(left < 0 ? 0 : left < size ? left : size);
  }

  // The first row that has tokens from `begin` on. REQUIRES: there is one.
  LAMINA_SIMD int FirstRow(int64_t begin) const {
    int row = 0;
    while (task.rows[row].num_tokens <= begin) ++row;
    return row;
  }

  // Clears outputs, sums and maxima, and packs q.
  LAMINA_SIMD void Start() {
    if constexpr (kWidens) {
      C* const widened = reinterpret_cast<C*>(s.widened);
      for (int t = 0; t < kTokenStretch; ++t) used[t] = widened + t * task.shape->head_dim;
    }
    for (int h = 0; h < NumHeads(); ++h) {
      for (int64_t d = 0; d < stride; ++d) s.out[h * stride + d] = 0;
      V::Zero().Store(s.sum + h * 16);
      s.max[h] = -__builtin_inff();
    }
    ForHeadGroups<V>(NumHeads(), [&]<int kHeads>(HeadCount<kHeads>, int first) {
      for (int h = 0; h < kHeads; ++h) PackQuery(first + h, kHeads, s.q + first * stride + h * 16);
    });
  }

  // Copies a head's q, scaled and in the order of its parts, to where the tiles read it. to: this
  // head's place in [stride / 16, group, 16], the q of a group of `group` heads.
  LAMINA_SIMD void PackQuery(int head, int group, float* to) {
    const int64_t head_dim = task.shape->head_dim;
    const float* q =
        task.rows[head / task.num_heads].q + (task.first_head + head % task.num_heads) * head_dim;
    alignas(64) float ordered[kMaxHeadDim];
    CopyIntoOrder<C>(q, head_dim, task.shape->scale / kScaleOf<T>, ordered);
    for (int64_t d = head_dim; d < stride; ++d) ordered[d] = 0;
    for (int64_t d = 0; d < stride; d += 16) V::Load(ordered + d).Store(to + d * group);
  }

  // Looks up the rows of the stretch of `row` that begins at token `begin`. Beyond its last token
  // they are the last one's again, so that tiles can read whole vectors; those scores are masked.
  LAMINA_SIMD void FindAhead(const void* k_or_v, const float* scales_of, int kv_head,
                             const AttentionRow& row, int64_t begin) {
    num_ahead = TokensIn(row, begin, kTokenStretch);
    if (num_ahead == 0) return;
    // Addresses are written out as numbers, and a stride as 32 bits which it fits, so that
    // compilers vectorise the loop.
    const auto base =
        reinterpret_cast<uintptr_t>(static_cast<const T*>(k_or_v) + kv_head * task.kv->head_stride);
    const auto slot_bytes =
        static_cast<uint32_t>(task.kv->slot_stride) * static_cast<uint32_t>(sizeof(T));
    const TokenSlot* slots = row.slots + begin;
    const T** to = ahead;
    const int tokens = num_ahead;
    for (int t = 0; t < tokens; ++t)
      to[t] = reinterpret_cast<const T*>(base + uint64_t{slots[t]} * slot_bytes);
    for (int t = num_ahead; t < kTokenStretch; ++t) ahead[t] = ahead[num_ahead - 1];
    if constexpr (kScaled) {
      const float* const from = scales_of + kv_head * task.kv->scale_head_stride;
      const int64_t pitch = task.kv->scale_slot_stride;
      float* const to_scales = scales_ahead;
      for (int t = 0; t < tokens; ++t) to_scales[t] = from[slots[t] * pitch];
    }
  }

  // Prefetches the scale of a token, and so those of the 15 behind it if their slots follow.
  LAMINA_SIMD void PrefetchScale(const float* scales_of, int64_t token) const {
    if (token >= NumTokens()) return;
    __builtin_prefetch(scales_of + task.kv_head * task.kv->scale_head_stride +
                       task.rows[task.num_rows - 1].slots[token] * task.kv->scale_slot_stride);
  }

  // Looks up the keys from `begin` on, after the last token those of the next task if it is known.
  // Scales are read when they are looked up, so those that come next are prefetched: of keys the
  // next stretch's, and of values those of the same tokens, which are used when the block's keys
  // are done.
  LAMINA_SIMD void FindKeysAhead(int64_t begin) {
    if constexpr (kScaled) {
      for (int t = 0; t < kTokenStretch; t += 16) {
        PrefetchScale(task.kv->k_scales, begin + kTokenStretch + t);
        PrefetchScale(task.kv->v_scales, begin + t);
      }
    }
    if (begin < NumTokens())
      return FindAhead(task.kv->k, task.kv->k_scales, task.kv_head, task.rows[task.num_rows - 1],
                       begin);
    num_ahead = 0;
    if (task.next_row != nullptr)
      FindAhead(task.kv->k, task.kv->k_scales, task.next_kv_head, *task.next_row, 0);
  }
  LAMINA_SIMD void FindValuesAhead(int64_t begin) {
    FindAhead(task.kv->v, task.kv->v_scales, task.kv_head, task.rows[task.num_rows - 1], begin);
  }

  // Makes the next stretch the one in use, widened if C asks for that. Returns its tokens.
  LAMINA_SIMD int NextStretch() {
    const T** free = rows;
    rows = ahead;
    ahead = free;
    if constexpr (kScaled) {
      float* const free_scales = scales;
      scales = scales_ahead;
      scales_ahead = free_scales;
    }
    if constexpr (kWidens) {
      C* const widened = reinterpret_cast<C*>(s.widened);
      for (int t = 0; t < (num_ahead + 15) / 16 * 16; ++t)
        Widen(rows[t], widened + t * task.shape->head_dim);
    } else {
      used = rows;
    }
    return num_ahead;
  }

  // row, to: [head_dim].
  LAMINA_SIMD void Widen(const T* row, C* to) {
    const int dims = task.shape->head_dim;
    int d = 0;
    if constexpr (std::is_same_v<C, float>) {
      for (; d + 16 <= dims; d += 16) V::Load(row + d).Store(to + d);
      for (; d < dims; ++d) to[d] = static_cast<float>(row[d]);
    } else {
      for (; d + 32 <= dims; d += 32) V::template Widen<32>(row + d, to + d);
      if (d + 16 <= dims) {
        V::template Widen<16>(row + d, to + d);
        d += 16;
      }
      if (d < dims) V::template Widen<8>(row + d, to + d);
    }
  }

  // Multiplies scores or weights of the stretch in use, of heads from `first` on, by the scales of
  // their tokens. What stands behind the last token, up to a whole vector, is changed as well, and
  // is never used: so a row does not see scales of tokens that it does not attend to either. x:
  // [heads, kTokenBlock], at the stretch's first token.
  LAMINA_SIMD void MultiplyByScales(int first, int tokens, float* x) {
    for (int h = first; h < NumHeads(); ++h) {
      for (int t = 0; t < tokens; t += 16) {
        float* const at = x + h * kTokenBlock + t;
        (V::Load(at) * V::Load(scales + t)).Store(at);
      }
    }
  }

  // Computes the scores of the stretch in use, tokens [begin, begin + tokens), in the groups of
  // heads that q is packed for. Groups whose rows have all ended before it are left out; what a
  // group computes for a row that has ended is not used. to: [heads, kTokenBlock].
  LAMINA_SIMD void Score(int64_t begin, int tokens, float* to) {
    const int first = FirstRow(begin) * task.num_heads, heads = NumHeads();
    const KeyStretch<C> stretch = {used, tokens, task.shape->head_dim};
    Prefetcher<V> prefetcher;
    StartPrefetch(prefetcher,
                  NumHeadGroups<V>(heads - first) *
                      HeadTiles<V>::ScoreSites(TileHeads(heads), tokens, stretch.head_dim));
    ForHeadGroups<V>(heads, [&]<int kHeads>(HeadCount<kHeads>, int h) {
      if (h + kHeads > first)
        ScoreHeads<V, C, kHeads>(stretch, s.q + h * stride, prefetcher, to + h * kTokenBlock);
    });
    if constexpr (kScaled) MultiplyByScales(first, tokens, to);
  }

  // Sets `prefetcher` to the next stretch, to be spread over `num_sites` calls of Some. If there is
  // no next stretch it takes a row in use, whose lines are there already.
  LAMINA_SIMD void StartPrefetch(Prefetcher<V>& prefetcher, int num_sites) {
    prefetcher.Start(num_ahead > 0 ? ahead : rows, num_ahead > 0 ? num_ahead : 1,
                     task.shape->head_dim, num_sites > 0 ? num_sites : 1);
  }

  // The heads of the largest of the groups that `heads` heads are taken in.
  LAMINA_SIMD static int TileHeads(int heads) {
    const int groups = NumHeadGroups<V>(heads);
    return (heads + groups - 1) / groups;
  }

  // Turns the scores of a block into weights and updates maxima, sums and corrections. Each of the
  // three steps is taken for all heads before the next, so that their chains of dependent
  // operations overlap.
  LAMINA_SIMD void Softmax(int64_t block_begin) {
    const int first = FirstRow(block_begin) * task.num_heads;
    for (int h = first; h < NumHeads(); ++h) {
      if (task.shape->soft_cap > 0)
        CapScores<V>(task.shape->soft_cap, TokensOfHead(h, block_begin),
                     s.scores + h * kTokenBlock);
      const float max =
          MaxScore<V>(s.scores + h * kTokenBlock, TokensOfHead(h, block_begin), s.max[h]);
      // In the first block this is -inf, and Exp makes a tiny number of it: the sum and the output
      // that it corrects are 0.
      s.correction[h] = s.max[h] - max;
      s.max[h] = max;
    }
    for (int h = first / 16 * 16; h < NumHeads(); h += 16)
      Exp(V::Load(s.correction + h)).Store(s.correction + h);
    for (int h = first; h < NumHeads(); ++h) {
      WeightsOfScores<V>(TokensOfHead(h, block_begin), s.max[h], s.correction[h],
                         s.scores + h * kTokenBlock, s.sum + h * 16);
    }
  }

  // How many tokens the row of `head` has in the block. The division is spared for a single row.
  LAMINA_SIMD int TokensOfHead(int head, int64_t block_begin) const {
    return TokensIn(task.rows[task.num_rows == 1 ? 0 : head / task.num_heads], block_begin,
                    kTokenBlock);
  }

  // Adds the first `tokens` weighted values of the stretch in use to the outputs of heads
  // [first_head, first_head + heads). weights: [all heads, kTokenBlock]; correction: [all heads].
  LAMINA_SIMD void AddValues(int first_head, int heads, int tokens, const float* weights,
                             const float* correction) {
    const int head_dim = task.shape->head_dim;
    Prefetcher<V> prefetcher;
    StartPrefetch(prefetcher, NumHeadGroups<V>(heads) *
                                  HeadTiles<V>::ValueSites(TileHeads(heads), tokens, head_dim));
    ForHeadGroups<V>(heads, [&]<int kHeads>(HeadCount<kHeads>, int h) {
      const int head = first_head + h;
      const ValueStretch<C> stretch = {used, tokens, head_dim, weights + head * kTokenBlock,
                                       correction + head};
      ValueHeads<V, C, kHeads>(stretch, prefetcher, s.out + head * stride, stride);
    });
  }

  // Adds the weighted values of the stretch in use, tokens [begin, begin + tokens), to all outputs.
  // Rows that end within the stretch are taken alone, so that no row uses V of a token that it does
  // not attend to: a weight of 0 would not hide a NaN there.
  LAMINA_SIMD void AddValues(int64_t begin, int tokens, const float* weights,
                             const float* correction) {
    int row = FirstRow(begin);
    for (int n; (n = TokensIn(task.rows[row], begin, kTokenStretch)) < tokens; ++row) {
      AddValues(row * task.num_heads, task.num_heads, n, weights, correction);
    }
    AddValues(row * task.num_heads, (task.num_rows - row) * task.num_heads, tokens, weights,
              correction);
  }

  // Takes the block of tokens that begins at `begin`. REQUIRES: its first keys are the next
  // stretch. Afterwards that is the first keys of the next block, or of the next task.
  LAMINA_SIMD void Block(int64_t begin) {
    const int64_t end = begin + TokensIn(task.rows[task.num_rows - 1], begin, kTokenBlock);
    for (int64_t at = begin; at < end; at += kTokenStretch) {
      const int tokens = NextStretch();
      if (at + kTokenStretch < end) {
        FindKeysAhead(at + kTokenStretch);
      } else {
        FindValuesAhead(begin);
      }
      Score(at, tokens, s.scores + (at - begin));
    }
    Softmax(begin);
    for (int64_t at = begin; at < end; at += kTokenStretch) {
      const int tokens = NextStretch();
      if (at + kTokenStretch < end) {
        FindValuesAhead(at + kTokenStretch);
      } else {
        FindKeysAhead(end);
      }
      if constexpr (kScaled)
        MultiplyByScales(FirstRow(at) * task.num_heads, tokens, s.scores + (at - begin));
      // Outputs are corrected once per block, by the first stretch.
      AddValues(at, tokens, s.scores + (at - begin), at == begin ? s.correction : s.ones);
    }
  }

  // Writes the normalised outputs and log-sum-exps. A row without tokens gets 0 and -inf.
  LAMINA_SIMD void Finish() {
    const int64_t head_dim = task.shape->head_dim;
    for (int h = 0; h < NumHeads(); ++h) {
      const AttentionRow& row = task.rows[h / task.num_heads];
      const int head = task.first_head + h % task.num_heads;
      const float sum = V::Load(s.sum + h * 16).SumLanes();
      const bool empty = row.num_tokens == 0;
      CopyOutOfOrder<C>(s.out + h * stride, head_dim, empty ? 1 : sum * kScaleOf<T>,
                        row.out + head * head_dim);
      if (row.lse != nullptr)
        row.lse[head] = empty ? -__builtin_inff()
                              : static_cast<float>(s.max[h] + log(static_cast<double>(sum)));
    }
  }
};

// Attend for a cache of elements T.
template <class V, typename T, typename C = T, bool kScaled = false>
void AttendOf(const AttentionTask& task, AttentionScratch& s) {
  AttentionRun<V, T, C, kScaled> run = {.task = task,
                                        .s = s,
                                        .stride = (task.shape->head_dim + 15) / 16 * 16,
                                        .rows = reinterpret_cast<const T**>(s.kv_rows[0]),
                                        .ahead = reinterpret_cast<const T**>(s.kv_rows[1]),
                                        .used = reinterpret_cast<const C**>(s.widened_rows),
                                        .scales = s.scales[0],
                                        .scales_ahead = s.scales[1]};
  run.Start();
  run.FindKeysAhead(0);
  for (int64_t begin = 0; begin < run.NumTokens(); begin += kTokenBlock) run.Block(begin);
  run.Finish();
}

// KernelTable::attention.
template <class V>
void Attend(const AttentionTask& task, AttentionScratch& scratch) {
  switch (task.kv->dtype) {
    case DType::kF32: return AttendOf<V, float>(task, scratch);
    case DType::kBF16: return AttendOf<V, BF16>(task, scratch);
    case DType::kF16: return AttendOf<V, F16>(task, scratch);
    // Converting F8 takes several instructions. Once per stretch is cheaper if several groups of
    // heads or several tiles read it, although they then read twice the bytes; one group of tiles
    // of whole vectors converts as it reads.
    case DType::kF8:
      if constexpr (V::kVectorRegisters == 1) {
        if (NumHeadGroups<V>(task.num_rows * task.num_heads) == 1)
          return AttendOf<V, F8>(task, scratch);
      }
      return AttendOf<V, F8, F16>(task, scratch);
    case DType::kF8Scaled:
      if constexpr (V::kVectorRegisters == 1) {
        if (NumHeadGroups<V>(task.num_rows * task.num_heads) == 1)
          return AttendOf<V, F8, F8, true>(task, scratch);
      }
      return AttendOf<V, F8, F16, true>(task, scratch);
    // An integer becomes a float in two instructions, which takes no scale of its own.
    case DType::kI8Scaled:
      if (NumHeadGroups<V>(task.num_rows * task.num_heads) == 1)
        return AttendOf<V, int8_t, int8_t, true>(task, scratch);
      return AttendOf<V, int8_t, float, true>(task, scratch);
  }
}

}  // namespace lamina
