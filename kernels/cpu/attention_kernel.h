// Attention of one task, written once over `class V`.
//
// Tokens are taken in blocks of kTokenBlock, counted from token 0: first all keys, then, after a step of the online softmax (Milakov &
// Gimelshein 2018), all values, each as long a stream of memory as the sequence's runs of slots allow. Both go in stretches of
// kTokenStretch tokens that stay in L1 for all heads of the task, and while one is used the next is asked for. A score is a sum over 16
// lanes of dimensions, which are then added up (Sum2 to Sum16); weighted values are summed token by token over a stretch. No sum
// ever mixes rows, heads or tokens, so how many of them share a tile does not show in the bits.
#pragma once

#include <math.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd_math.h"

namespace lamina {

// How many tokens a tile of scores and how many vectors a tile of outputs takes for so many heads: what the registers hold.
template <class V>
struct HeadTiles {
  static constexpr bool kWide = V::kRegisters >= 32;
  static constexpr int kMaxHeads = kWide ? 4 : 2;
  static constexpr int Tokens(int heads) { return kWide ? (heads <= 2 ? 8 : 4) : heads == 1 ? 4 : 2; }
  static constexpr int Vectors(int heads) { return kWide ? (heads <= 2 ? 8 : 4) : heads == 1 ? 4 : 2; }
};

// What elements are multiplied with before arithmetic takes them. A power of two, so q and the outputs make up for it exactly.
template <typename T>
inline constexpr float kScaleOf = 1;
template <>
inline constexpr float kScaleOf<F8> = kF8Scale;

// The order of a row's elements in the kernel: as the first and second vector of 32 elements come out of memory. An odd 16 and the last 8
// elements follow in their own order, the 8 with zeros.
template <class V, typename T>
LAMINA_SIMD V LoadFirstOf32(const T* p) {
  return V::Load(p);
}
template <class V, typename T>
LAMINA_SIMD V LoadSecondOf32(const T* p) {
  return V::Load(p + 16);
}
template <class V>
LAMINA_SIMD V LoadFirstOf32(const BF16* p) {
  return V::LoadEven(p);
}
template <class V>
LAMINA_SIMD V LoadSecondOf32(const BF16* p) {
  return V::LoadOdd(p);
}
template <class V>
LAMINA_SIMD V LoadFirstOf32(const F8* p) {
  return V::LoadFirstScaled(p);
}
template <class V>
LAMINA_SIMD V LoadSecondOf32(const F8* p) {
  return V::LoadSecondScaled(p);
}

// An odd 16, and 8 and zeros.
template <class V, typename T>
LAMINA_SIMD V Load16(const T* p) {
  return V::Load(p);
}
template <class V, typename T>
LAMINA_SIMD V Load8(const T* p) {
  return V::LoadHalf(p);
}
template <class V>
LAMINA_SIMD V Load16(const F8* p) {
  return V::LoadScaled(p);
}
template <class V>
LAMINA_SIMD V Load8(const F8* p) {
  return V::LoadHalfScaled(p);
}

// Into and out of that order, for rows of T, times `factor` or divided by `divisor`.
template <typename T>
LAMINA_SIMD void CopyIntoOrder(const float* x, int64_t dims, float factor, float* y) {
  int64_t d = 0;
  if constexpr (std::is_same_v<T, BF16>) {
    for (; d + 32 <= dims; d += 32) {
      for (int64_t i = 0; i < 16; ++i) y[d + i] = x[d + 2 * i] * factor;
      for (int64_t i = 0; i < 16; ++i) y[d + 16 + i] = x[d + 2 * i + 1] * factor;
    }
  }
  for (; d < dims; ++d) y[d] = x[d] * factor;
}
template <typename T>
LAMINA_SIMD void CopyOutOfOrder(const float* x, int64_t dims, float divisor, float* y) {
  int64_t d = 0;
  if constexpr (std::is_same_v<T, BF16>) {
    for (; d + 32 <= dims; d += 32) {
      for (int64_t i = 0; i < 16; ++i) {
        y[d + 2 * i] = x[d + i] / divisor;
        y[d + 2 * i + 1] = x[d + 16 + i] / divisor;
      }
    }
  }
  for (; d < dims; ++d) y[d] = x[d] / divisor;
}

// Rows of K, or V, of kTokens tokens at the same place of their rows.
enum class Part { kFirstOf32, kSecondOf32, k16, k8 };

template <class V, Part kPart, typename T>
LAMINA_SIMD V LoadPart(const T* p) {
  if constexpr (kPart == Part::kFirstOf32) return LoadFirstOf32<V>(p);
  if constexpr (kPart == Part::kSecondOf32) return LoadSecondOf32<V>(p);
  if constexpr (kPart == Part::k16) return Load16<V>(p);
  return Load8<V>(p);
}

// q: [kHeads][16], the same 16 dimensions of each head.
template <class V, Part kPart, typename T, int kHeads, int kTokens>
LAMINA_SIMD void AddProducts(const float* q, const T* const* rows, int dim, V (&sum)[kHeads][kTokens]) {
  V key[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) key[t] = LoadPart<V, kPart>(rows[t] + dim);
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
    const V qh = V::Load(q + h * 16);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) sum[h][t] = Fma(qh, key[t], sum[h][t]);
  }
}

// Rows of a stretch to ask memory for, a few lines at a time between the multiply-adds of another: asked for all at once they would
// fill the core's queue of misses and hold up its loads.
class Prefetcher {
 public:
  // `num_sites` calls of Some are to come, or more. REQUIRES: num_rows > 0.
  template <typename T>
  LAMINA_SIMD void Start(const T* const* rows, int num_rows, int dims, int num_sites) {
    row_ = reinterpret_cast<const char* const*>(rows);
    last_row_ = row_ + (num_rows - 1);
    row_bytes_ = dims * static_cast<int>(sizeof(T));
    line_ = *row_;
    row_end_ = line_ + row_bytes_;
    per_site_ = (num_rows * ((row_bytes_ + 63) / 64) + num_sites - 1) / num_sites;
  }

  // When all have been asked for, the last row again, which costs nothing.
  LAMINA_SIMD void Some() {
    for (int i = per_site_; i > 0; --i) {
      __builtin_prefetch(line_);
      line_ += 64;
      if (line_ < row_end_) continue;
      row_ += row_ < last_row_;
      line_ = *row_;
      row_end_ = line_ + row_bytes_;
    }
  }

 private:
  const char* const* row_ = nullptr;
  const char* const* last_row_ = nullptr;
  const char* line_ = nullptr;  // of *row_, to be asked for next
  const char* row_end_ = nullptr;
  int row_bytes_ = 0;
  int per_site_ = 0;
};

// The keys of a stretch; rows up to a multiple of 16 can be read.
template <typename T>
struct KeyStretch {
  const T* const* rows;
  int num_tokens;
  int head_dim;
};

// Scores of kHeads heads, a few tokens at a time. Their lanes are added up in registers: on Zen 5 a 512-bit store takes the place of about
// two multiply-adds, and shuffles across 128-bit lanes compete with them too, those within do not.
template <class V, typename T, int kHeads>
struct ScoreTiles {
  static constexpr int kTokens = HeadTiles<V>::Tokens(kHeads);
  const float* q;  // [head_dim / 16][kHeads][16]
  int head_dim;
  Prefetcher prefetcher;

  LAMINA_SIMD void Tile(const T* const* rows, V (&sum)[kHeads][kTokens]) {
    const T* row[kTokens];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) row[t] = rows[t];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) sum[h][t] = V::Zero();
    }
    const float* from = q;
    int dim = 0;
    for (; dim + 32 <= head_dim; dim += 32, from += kHeads * 32) {
      prefetcher.Some();
      AddProducts<V, Part::kFirstOf32>(from, row, dim, sum);
      AddProducts<V, Part::kSecondOf32>(from + kHeads * 16, row, dim, sum);
    }
    if (dim + 16 <= head_dim) {
      AddProducts<V, Part::k16>(from, row, dim, sum);
      dim += 16;
      from += kHeads * 16;
    }
    if (dim < head_dim) AddProducts<V, Part::k8>(from, row, dim, sum);
  }

  LAMINA_SIMD void Four(const T* const* rows, typename V::Sums4 (&sums)[kHeads]) {
    if constexpr (kTokens == 4) {
      V sum[kHeads][kTokens];
      Tile(rows, sum);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) sums[h] = V::Sum4(V::Sum2(sum[h][0], sum[h][1]), V::Sum2(sum[h][2], sum[h][3]));
    } else {
      V sum[kHeads][kTokens], first[kHeads];
      Tile(rows, sum);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) first[h] = V::Sum2(sum[h][0], sum[h][1]);
      Tile(rows + 2, sum);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) sums[h] = V::Sum4(first[h], V::Sum2(sum[h][0], sum[h][1]));
    }
  }

  LAMINA_SIMD void Eight(const T* const* rows, typename V::Sums8 (&sums)[kHeads]) {
    if constexpr (kTokens == 8) {
      V sum[kHeads][kTokens];
      Tile(rows, sum);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        sums[h] = V::Sum8(V::Sum4(V::Sum2(sum[h][0], sum[h][1]), V::Sum2(sum[h][2], sum[h][3])),
                          V::Sum4(V::Sum2(sum[h][4], sum[h][5]), V::Sum2(sum[h][6], sum[h][7])));
      }
    } else {
      typename V::Sums4 first[kHeads], second[kHeads];
      Four(rows, first);
      Four(rows + 4, second);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) sums[h] = V::Sum8(first[h], second[h]);
    }
  }

  // to: [kHeads][kTokenBlock], of which 16 scores are written.
  LAMINA_SIMD void Sixteen(const T* const* rows, float* to) {
    typename V::Sums8 first[kHeads], second[kHeads];
    Eight(rows, first);
    Eight(rows + 8, second);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) V::Sum16(first[h], second[h]).Store(to + h * kTokenBlock);
  }
};

// scores[h][tokens] = q[h] k[tokens], for kHeads heads.
template <class V, typename T, int kHeads>
[[gnu::noinline]] void ScoreHeads(const KeyStretch<T>& stretch, const float* q, Prefetcher& prefetcher, float* scores) {
  ScoreTiles<V, T, kHeads> tiles = {q, stretch.head_dim, prefetcher};
  for (int begin = 0; begin < stretch.num_tokens; begin += 16) tiles.Sixteen(stretch.rows + begin, scores + begin);
  prefetcher = tiles.prefetcher;
}

// The values of a stretch and what they are weighted with.
template <typename T>
struct ValueStretch {
  const T* const* rows;
  int num_tokens;
  int head_dim;
  const float* weights;     // [heads][kTokenBlock]
  const float* correction;  // [heads]
};

// out[h][dims] = out[h][dims] * correction[h] + sum over tokens of weights[h][t] * rows[t][dims], for kVectors vectors from `dim` on: pairs
// as they are loaded, or one of 16 or 8 elements.
template <class V, Part kPart, typename T, int kHeads, int kVectors>
LAMINA_SIMD void ValueTile(const ValueStretch<T>& stretch, int dim, Prefetcher& prefetcher, float* out, int64_t out_stride) {
  V sum[kHeads][kVectors];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[h][v] = V::Zero();
  }
  Prefetcher ahead = prefetcher;
  for (int t = 0; t < stretch.num_tokens; ++t) {
    const T* row = stretch.rows[t] + dim;
    ahead.Some();
    V value[kVectors];
    if constexpr (kPart == Part::kFirstOf32) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; v += 2) {
        value[v] = LoadFirstOf32<V>(row + v * 16);
        value[v + 1] = LoadSecondOf32<V>(row + v * 16);
      }
    } else {
      value[0] = LoadPart<V, kPart>(row);
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const V weight = V::Set(stretch.weights[h * kTokenBlock + t]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[h][v] = Fma(weight, value[v], sum[h][v]);
    }
  }
  prefetcher = ahead;
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* to = out + h * out_stride + dim + v * 16;
      Fma(V::Load(to), V::Set(stretch.correction[h]), sum[h][v]).Store(to);
    }
  }
}

template <class V, typename T, int kHeads>
[[gnu::noinline]] void ValueHeads(const ValueStretch<T>& stretch, Prefetcher& prefetcher, float* out, int64_t out_stride) {
  constexpr int kVectors = HeadTiles<V>::Vectors(kHeads);
  int dim = 0;
  for (; dim + 16 * kVectors <= stretch.head_dim; dim += 16 * kVectors) {
    ValueTile<V, Part::kFirstOf32, T, kHeads, kVectors>(stretch, dim, prefetcher, out, out_stride);
  }
  if constexpr (kVectors > 4) {
    for (; dim + 64 <= stretch.head_dim; dim += 64) ValueTile<V, Part::kFirstOf32, T, kHeads, 4>(stretch, dim, prefetcher, out, out_stride);
  }
  if constexpr (kVectors > 2) {
    for (; dim + 32 <= stretch.head_dim; dim += 32) ValueTile<V, Part::kFirstOf32, T, kHeads, 2>(stretch, dim, prefetcher, out, out_stride);
  }
  for (; dim + 16 <= stretch.head_dim; dim += 16) ValueTile<V, Part::k16, T, kHeads, 1>(stretch, dim, prefetcher, out, out_stride);
  if (dim < stretch.head_dim) ValueTile<V, Part::k8, T, kHeads, 1>(stretch, dim, prefetcher, out, out_stride);
}

template <int kHeads>
struct HeadCount {};

template <class V>
LAMINA_SIMD int NumHeadGroups(int heads) {
  return (heads + HeadTiles<V>::kMaxHeads - 1) / HeadTiles<V>::kMaxHeads;
}

// Calls f(HeadCount<n>, first head) for `heads` heads in groups of at most kMaxHeads that differ by one at most.
template <class V, class F>
LAMINA_SIMD void ForHeadGroups(int heads, const F& f) {
  constexpr int kMax = HeadTiles<V>::kMaxHeads;
  const int groups = NumHeadGroups<V>(heads);
  for (int i = 0; i < groups; ++i) {
    const int first = heads * i / groups, n = heads * (i + 1) / groups - first;
    if constexpr (kMax > 2) {
      if (n == 4) f(HeadCount<4>(), first);
      if (n == 3) f(HeadCount<3>(), first);
    }
    if (n == 2) f(HeadCount<2>(), first);
    if (n == 1) f(HeadCount<1>(), first);
  }
}

// The largest of `max` and the scores of `tokens` tokens.
template <class V>
LAMINA_SIMD float MaxScore(const float* scores, int tokens, float max) {
  V largest = V::Set(max);
  int t = 0;
  for (; t + 16 <= tokens; t += 16) largest = Max(V::Load(scores + t), largest);  // a NaN score loses here and shows as exp(NaN)
  if (t < tokens) largest = Max(V::FirstOf(tokens - t, V::Load(scores + t), largest), largest);
  return largest.MaxLanes();
}

// Scores of `tokens` tokens, rounded up to whole vectors, are capped.
template <class V>
LAMINA_SIMD void CapScores(float cap, int tokens, float* scores) {
  for (int t = 0; t < tokens; t += 16) SoftCapped(V::Load(scores + t), V::Set(cap)).Store(scores + t);
}

// 64 scores, of which those of `tokens` tokens count, become weights exp(score - max), of which the sum is returned.
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

// Scores of one head become weights, which are added to the rescaled sum.
template <class V>
LAMINA_SIMD void WeightsOfScores(int tokens, float max, float correction, float* scores, float* sum) {
  const V max_of_all = V::Set(max);
  V total = V::Load(sum) * V::Set(correction);
  int t = 0;
  for (; t + 64 <= tokens; t += 64) total = total + WeightsOf64<V, true>(max_of_all, 64, scores + t);
  if (t < tokens) total = total + WeightsOf64<V, false>(max_of_all, tokens - t, scores + t);
  total.Store(sum);
}

// Of stored elements T. C is what arithmetic takes: T, or what T is widened to, a stretch at a time for all heads of the task.
template <class V, typename T, typename C>
struct AttentionRun {
  static constexpr bool kWidens = !std::is_same_v<C, T>;

  const AttentionTask& task;
  AttentionScratch& s;
  int64_t stride;     // from one head's q or output to the next in the scratch
  const T** rows;     // K or V of the stretch that is used
  const T** ahead;    // of the next one
  const C** used;     // `rows`, or where they are widened
  int num_ahead = 0;  // tokens of it

  LAMINA_SIMD int NumHeads() const { return task.num_rows * task.num_heads; }
  LAMINA_SIMD int64_t NumTokens() const { return task.rows[task.num_rows - 1].num_tokens; }

  // Tokens of a row in [begin, begin + size), not below 0.
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

  LAMINA_SIMD void Start() {
    if constexpr (kWidens) {
      for (int t = 0; t < kTokenStretch; ++t) used[t] = s.widened + t * task.shape->head_dim;
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

  // to: [stride / 16][group][16], this head's 16 of each group.
  LAMINA_SIMD void PackQuery(int head, int group, float* to) {
    const int64_t head_dim = task.shape->head_dim;
    const float* q = task.rows[head / task.num_heads].q + (task.first_head + head % task.num_heads) * head_dim;
    alignas(64) float ordered[kMaxHeadDim];
    CopyIntoOrder<C>(q, head_dim, task.shape->scale / kScaleOf<T>, ordered);
    for (int64_t d = head_dim; d < stride; ++d) ordered[d] = 0;
    for (int64_t d = 0; d < stride; d += 16) V::Load(ordered + d).Store(to + d * group);
  }

  // Rows of the stretch of `row` that begins at `begin`; beyond its last token that one's again, so that whole vectors can be read. What
  // comes of that is masked.
  LAMINA_SIMD void FindAhead(const void* k_or_v, int kv_head, const AttentionRow& row, int64_t begin) {
    num_ahead = TokensIn(row, begin, kTokenStretch);
    if (num_ahead == 0) return;
    // In a form that compilers turn into vectors: a stride fits 32 bits.
    const auto base = reinterpret_cast<uintptr_t>(static_cast<const T*>(k_or_v) + kv_head * task.kv->head_stride);
    const auto slot_bytes = static_cast<uint32_t>(task.kv->slot_stride) * static_cast<uint32_t>(sizeof(T));
    const TokenSlot* slots = row.slots + begin;
    const T** to = ahead;
    const int tokens = num_ahead;
    for (int t = 0; t < tokens; ++t) to[t] = reinterpret_cast<const T*>(base + uint64_t{slots[t]} * slot_bytes);
    for (int t = num_ahead; t < kTokenStretch; ++t) ahead[t] = ahead[num_ahead - 1];
  }

  LAMINA_SIMD void FindKeysAhead(int64_t begin) {
    if (begin < NumTokens()) return FindAhead(task.kv->k, task.kv_head, task.rows[task.num_rows - 1], begin);
    num_ahead = 0;
    if (task.next_row != nullptr) FindAhead(task.kv->k, task.next_kv_head, *task.next_row, 0);
  }
  LAMINA_SIMD void FindValuesAhead(int64_t begin) { FindAhead(task.kv->v, task.kv_head, task.rows[task.num_rows - 1], begin); }

  // What was ahead is used now.
  LAMINA_SIMD int NextStretch() {
    const T** free = rows;
    rows = ahead;
    ahead = free;
    if constexpr (kWidens) {
      for (int t = 0; t < (num_ahead + 15) / 16 * 16; ++t) Widen(rows[t], s.widened + t * task.shape->head_dim);
    } else {
      used = rows;
    }
    return num_ahead;
  }

  LAMINA_SIMD void Widen(const T* row, C* to) {
    const int dims = task.shape->head_dim;
    int d = 0;
    for (; d + 32 <= dims; d += 32) V::template Widen<32>(row + d, to + d);
    if (d + 16 <= dims) {
      V::template Widen<16>(row + d, to + d);
      d += 16;
    }
    if (d < dims) V::template Widen<8>(row + d, to + d);
  }

  // Of all heads, in the groups that q is packed for; those of rows that have ended are not used.
  LAMINA_SIMD void Score(int64_t begin, int tokens, float* scores) {
    const int first = FirstRow(begin) * task.num_heads, heads = NumHeads();
    const KeyStretch<C> stretch = {used, tokens, task.shape->head_dim};
    Prefetcher prefetcher;
    StartPrefetch(prefetcher,
                  NumHeadGroups<V>(heads - first) * ((tokens + 15) / 16 * 16 * stretch.head_dim / (HeadTiles<V>::Tokens(heads) * 32)));
    ForHeadGroups<V>(heads, [&]<int kHeads>(HeadCount<kHeads>, int h) {
      if (h + kHeads > first) ScoreHeads<V, C, kHeads>(stretch, s.q + h * stride, prefetcher, scores + h * kTokenBlock);
    });
  }

  // Nothing to come: what is in use, which is there.
  LAMINA_SIMD void StartPrefetch(Prefetcher& prefetcher, int num_sites) {
    prefetcher.Start(num_ahead > 0 ? ahead : rows, num_ahead > 0 ? num_ahead : 1, task.shape->head_dim, num_sites > 0 ? num_sites : 1);
  }

  // For all heads one thing after the other, so that their chains of dependent operations overlap.
  LAMINA_SIMD void Softmax(int64_t block_begin) {
    const int first = FirstRow(block_begin) * task.num_heads;
    for (int h = first; h < NumHeads(); ++h) {
      if (task.shape->soft_cap > 0) CapScores<V>(task.shape->soft_cap, TokensOfHead(h, block_begin), s.scores + h * kTokenBlock);
      const float max = MaxScore<V>(s.scores + h * kTokenBlock, TokensOfHead(h, block_begin), s.max[h]);
      s.correction[h] = s.max[h] - max;  // the first block: -inf, of an output and a sum that are 0
      s.max[h] = max;
    }
    for (int h = first / 16 * 16; h < NumHeads(); h += 16) Exp(V::Load(s.correction + h)).Store(s.correction + h);
    for (int h = first; h < NumHeads(); ++h) {
      WeightsOfScores<V>(TokensOfHead(h, block_begin), s.max[h], s.correction[h], s.scores + h * kTokenBlock, s.sum + h * 16);
    }
  }

  LAMINA_SIMD int TokensOfHead(int head, int64_t block_begin) const {
    return TokensIn(task.rows[task.num_rows == 1 ? 0 : head / task.num_heads], block_begin, kTokenBlock);
  }

  LAMINA_SIMD void AddValues(int first_head, int heads, int tokens, const float* weights, const float* correction) {
    const int head_dim = task.shape->head_dim;
    Prefetcher prefetcher;
    StartPrefetch(prefetcher, NumHeadGroups<V>(heads) * tokens * (head_dim / (HeadTiles<V>::Vectors(heads) * 16)));
    ForHeadGroups<V>(heads, [&]<int kHeads>(HeadCount<kHeads>, int h) {
      const int head = first_head + h;
      const ValueStretch<C> stretch = {used, tokens, head_dim, weights + head * kTokenBlock, correction + head};
      ValueHeads<V, C, kHeads>(stretch, prefetcher, s.out + head * stride, stride);
    });
  }

  // Rows that end within the stretch go alone, so that no row reads V of a token it does not attend to (0 * NaN is NaN).
  LAMINA_SIMD void AddValues(int64_t begin, int tokens, const float* weights, const float* correction) {
    int row = FirstRow(begin);
    for (int n; (n = TokensIn(task.rows[row], begin, kTokenStretch)) < tokens; ++row) {
      AddValues(row * task.num_heads, task.num_heads, n, weights, correction);
    }
    AddValues(row * task.num_heads, (task.num_rows - row) * task.num_heads, tokens, weights, correction);
  }

  // REQUIRES: its first keys are ahead. They are those of the next block, or task, afterwards.
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
      AddValues(at, tokens, s.scores + (at - begin), at == begin ? s.correction : s.ones);
    }
  }

  LAMINA_SIMD void Finish() {
    const int64_t head_dim = task.shape->head_dim;
    for (int h = 0; h < NumHeads(); ++h) {
      const AttentionRow& row = task.rows[h / task.num_heads];
      const int head = task.first_head + h % task.num_heads;
      const float sum = V::Load(s.sum + h * 16).SumLanes();
      const bool empty = row.num_tokens == 0;
      CopyOutOfOrder<C>(s.out + h * stride, head_dim, empty ? 1 : sum * kScaleOf<T>, row.out + head * head_dim);
      if (row.lse != nullptr) row.lse[head] = empty ? -__builtin_inff() : static_cast<float>(s.max[h] + log(static_cast<double>(sum)));
    }
  }
};

template <class V, typename T, typename C = T>
void AttendOf(const AttentionTask& task, AttentionScratch& s) {
  AttentionRun<V, T, C> run = {.task = task,
                               .s = s,
                               .stride = (task.shape->head_dim + 15) / 16 * 16,
                               .rows = reinterpret_cast<const T**>(s.kv_rows[0]),
                               .ahead = reinterpret_cast<const T**>(s.kv_rows[1]),
                               .used = reinterpret_cast<const C**>(s.widened_rows)};
  run.Start();
  run.FindKeysAhead(0);
  for (int64_t begin = 0; begin < run.NumTokens(); begin += kTokenBlock) run.Block(begin);
  run.Finish();
}

template <class V>
void Attend(const AttentionTask& task, AttentionScratch& scratch) {
  switch (task.kv->dtype) {
    case DType::kF32: return AttendOf<V, float>(task, scratch);
    case DType::kBF16: return AttendOf<V, BF16>(task, scratch);
    case DType::kF16: return AttendOf<V, F16>(task, scratch);
    case DType::kF8:  // widening takes several instructions, but each group of heads then reads twice the bytes
      if (NumHeadGroups<V>(task.num_rows * task.num_heads) > 1) return AttendOf<V, F8, F16>(task, scratch);
      return AttendOf<V, F8>(task, scratch);
  }
}

}  // namespace lamina
