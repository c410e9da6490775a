// Tiles of attention, written once over `class V`: the scores of a stretch of keys, and the
// weighted sum of a stretch of values, for as many heads as the registers hold, while the next
// stretch is prefetched. attention_kernel.h puts them together.
//
// A score is formed in 16 lanes, each over a sixteenth of the dimensions, which are then added up
// (Sum2 to Sum16); weighted values are summed token by token over a stretch. No score mixes rows,
// heads or tokens and no weighted sum mixes rows or heads, so how many of them share a tile does
// not change a bit.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd_scalar.h"

namespace lamina {

// The size of tiles: what the registers hold beside the operands.
template <class V>
struct HeadTiles {
  static constexpr bool kWide = V::kRegisters >= 32;
  static constexpr int kMaxHeads = kWide ? 4 : 2;
  // Tokens per tile of scores, and vectors per tile of outputs, if the tile has `heads` heads.
  static constexpr int Tokens(int heads) {
    return kWide ? (heads <= 2 ? 8 : 4) : heads == 1 ? 4 : 2;
  }
  static constexpr int Vectors(int heads) {
    return kWide ? (heads <= 2 ? 8 : 4) : heads == 1 ? 4 : 2;
  }
};

// LoadPart gives elements of T times this. It is a power of two, so that q and the outputs can make
// up for it without rounding.
template <typename T>
inline constexpr float kScaleOf = 1;
template <>
inline constexpr float kScaleOf<F8> = kF8Scale;

// The parts in which the head_dim elements of a row are taken, one vector each: blocks of 32 as two
// vectors, then 16 if that many are left, then 8 filled up with zeros. Which 16 of a block of 32
// are its first vector is what is cheapest to load: in bf16 the even elements, else the first 16.
// The kernel keeps q and the outputs in this order too.
enum class Part { kFirstOf32, kSecondOf32, k16, k8 };

// Loads one part, times kScaleOf<T>. p: where the part begins, for either part of 32 the block of
// 32 elements.
template <class V, Part kPart, typename T>
LAMINA_SIMD V LoadPart(const T* p) {
  if constexpr (std::is_same_v<T, F8>) {
    if constexpr (kPart == Part::kFirstOf32) return V::LoadFirstScaled(p);
    if constexpr (kPart == Part::kSecondOf32) return V::LoadSecondScaled(p);
    if constexpr (kPart == Part::k16) return V::LoadScaled(p);
    if constexpr (kPart == Part::k8) return V::LoadHalfScaled(p);
  } else if constexpr (kPart == Part::k8) {
    return V::LoadHalf(p);
  } else if constexpr (kPart == Part::k16) {
    return V::Load(p);
  } else if constexpr (std::is_same_v<T, BF16>) {
    return kPart == Part::kFirstOf32 ? V::LoadEven(p) : V::LoadOdd(p);
  } else {
    return V::Load(kPart == Part::kFirstOf32 ? p : p + 16);
  }
}

// Copies x times `factor` into the order in which rows of T are taken. x, y: [dims].
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
// Copies x divided by `divisor` back from that order. x, y: [dims].
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

// Adds one part's products to the sums of a tile of scores: sum[h][t] += q[h] * the part of rows[t]
// that begins at `dim`, lane by lane. q: [kHeads, 16], this part of each head.
template <class V, Part kPart, typename T, int kHeads, int kTokens>
LAMINA_SIMD void AddProducts(const float* q, const T* const* rows, int dim,
                             V (&sum)[kHeads][kTokens]) {
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

// Prefetches the rows of the next stretch, a few cache lines at a time, between the multiply-adds
// of this one: all at once they would fill the core's queue of misses and hold up its loads.
class Prefetcher {
 public:
  // Begins with the rows [num_rows][dims], to be spread over `num_sites` calls of Some; there may
  // be more calls. Borrows `rows`. REQUIRES: num_rows > 0, num_sites > 0.
  template <typename T>
  LAMINA_SIMD void Start(const T* const* rows, int num_rows, int dims, int num_sites) {
    row_ = reinterpret_cast<const char* const*>(rows);
    last_row_ = row_ + (num_rows - 1);
    row_bytes_ = dims * static_cast<int>(sizeof(T));
    line_ = *row_;
    row_end_ = line_ + row_bytes_;
    per_site_ = (num_rows * ((row_bytes_ + 63) / 64) + num_sites - 1) / num_sites;
  }

  // Prefetches the next few lines. When there are no more it takes the last row again, whose lines
  // are there already, which costs nothing.
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
  const char* line_ = nullptr;  // of *row_, to be prefetched next
  const char* row_end_ = nullptr;
  int row_bytes_ = 0;
  int per_site_ = 0;
};

// The keys of a stretch.
template <typename T>
struct KeyStretch {
  const T* const* rows;  // [num_tokens rounded up to a multiple of 16], each [head_dim]
  int num_tokens;
  int head_dim;
};

// Scores of kHeads heads, a few tokens at a time. The lanes of a score are added up in registers,
// with few shuffles across 128-bit lanes: on Zen 5 a 512-bit store takes the place of about two
// multiply-adds, and shuffles across 128-bit lanes compete with multiply-adds too, while shuffles
// within them do not.
template <class V, typename T, int kHeads>
struct ScoreTiles {
  static constexpr int kTokens = HeadTiles<V>::Tokens(kHeads);
  const float* q;  // [head_dim / 16 rounded up, kHeads, 16]
  int head_dim;
  Prefetcher prefetcher;

  // sum[h][t] = q[h] * rows[t], whose lanes have yet to be added up.
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

  // Four and Eight: sums of the lanes of as many tokens, in one tile or in two.
  LAMINA_SIMD void Four(const T* const* rows, typename V::Sums4 (&sums)[kHeads]) {
    if constexpr (kTokens == 4) {
      V sum[kHeads][kTokens];
      Tile(rows, sum);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h)
        sums[h] = V::Sum4(V::Sum2(sum[h][0], sum[h][1]), V::Sum2(sum[h][2], sum[h][3]));
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

  // Writes 16 scores of each head. to: [kHeads, kTokenBlock], at the first of these tokens.
  LAMINA_SIMD void Sixteen(const T* const* rows, float* to) {
    typename V::Sums8 first[kHeads], second[kHeads];
    Eight(rows, first);
    Eight(rows + 8, second);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) V::Sum16(first[h], second[h]).Store(to + h * kTokenBlock);
  }
};

// scores[h][t] = q[h] k[t] for kHeads heads and the tokens of a stretch, up to the next multiple of
// 16. q: [head_dim / 16 rounded up, kHeads, 16]; scores: [kHeads, kTokenBlock], at the stretch's
// first token.
template <class V, typename T, int kHeads>
[[gnu::noinline]] void ScoreHeads(const KeyStretch<T>& stretch, const float* q,
                                  Prefetcher& prefetcher, float* scores) {
  ScoreTiles<V, T, kHeads> tiles = {q, stretch.head_dim, prefetcher};
  for (int begin = 0; begin < stretch.num_tokens; begin += 16)
    tiles.Sixteen(stretch.rows + begin, scores + begin);
  prefetcher = tiles.prefetcher;
}

// The values of a stretch, their weights, and the factor for what was summed up before.
template <typename T>
struct ValueStretch {
  const T* const* rows;  // [num_tokens], each [head_dim]
  int num_tokens;
  int head_dim;
  const float* weights;     // [heads, kTokenBlock], at the stretch's first token
  const float* correction;  // [heads]
};

// out[h] = out[h] * correction[h] + sum over tokens of weights[h][t] * rows[t], for the dimensions
// of kVectors vectors from `dim` on: pairs of parts of 32 elements, or one part of 16 or 8. out:
// [kHeads, out_stride].
template <class V, Part kPart, typename T, int kHeads, int kVectors>
LAMINA_SIMD void ValueTile(const ValueStretch<T>& stretch, int dim, Prefetcher& prefetcher,
                           float* out, int64_t out_stride) {
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
        value[v] = LoadPart<V, Part::kFirstOf32>(row + v * 16);
        value[v + 1] = LoadPart<V, Part::kSecondOf32>(row + v * 16);
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

// ValueTile for all head_dim dimensions: in the widest tiles that the registers hold, then in
// narrower ones for what is left. out: [kHeads, out_stride].
template <class V, typename T, int kHeads>
[[gnu::noinline]] void ValueHeads(const ValueStretch<T>& stretch, Prefetcher& prefetcher,
                                  float* out, int64_t out_stride) {
  constexpr int kVectors = HeadTiles<V>::Vectors(kHeads);
  int dim = 0;
  for (; dim + 16 * kVectors <= stretch.head_dim; dim += 16 * kVectors) {
    ValueTile<V, Part::kFirstOf32, T, kHeads, kVectors>(stretch, dim, prefetcher, out, out_stride);
  }
  if constexpr (kVectors > 4) {
    for (; dim + 64 <= stretch.head_dim; dim += 64)
      ValueTile<V, Part::kFirstOf32, T, kHeads, 4>(stretch, dim, prefetcher, out, out_stride);
  }
  if constexpr (kVectors > 2) {
    for (; dim + 32 <= stretch.head_dim; dim += 32)
      ValueTile<V, Part::kFirstOf32, T, kHeads, 2>(stretch, dim, prefetcher, out, out_stride);
  }
  for (; dim + 16 <= stretch.head_dim; dim += 16)
    ValueTile<V, Part::k16, T, kHeads, 1>(stretch, dim, prefetcher, out, out_stride);
  if (dim < stretch.head_dim)
    ValueTile<V, Part::k8, T, kHeads, 1>(stretch, dim, prefetcher, out, out_stride);
}

// A number of heads as a type, to choose a template by it.
template <int kHeads>
struct HeadCount {};

// How many groups ForHeadGroups makes.
template <class V>
LAMINA_SIMD int NumHeadGroups(int heads) {
  return (heads + HeadTiles<V>::kMaxHeads - 1) / HeadTiles<V>::kMaxHeads;
}

// Calls f(HeadCount<n>, first head) for `heads` heads in groups of at most kMaxHeads that differ by
// one at most.
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

}  // namespace lamina
