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
  static constexpr bool kWide = V::kRegisters >= 32, kNarrow = V::kRegisters < 16;
  static constexpr int kMaxHeads = kNarrow ? 2 : 4;
  // Tokens per tile of scores if the tile has `heads` heads: each has one register of sums per head
  // and token, with AVX2 for half of the lanes of a score.
  static constexpr int Tokens(int heads) {
    if (kWide) return heads <= 2 ? 8 : 4;
    if (kNarrow) return heads == 1 ? 4 : 2;
    return heads == 1 ? 8 : heads == 2 ? 4 : 2;
  }
  // Registers per tile of outputs if the tile has `heads` heads and `left` registers are left.
  static constexpr int Outputs(int heads, int left) {
    const int most = kWide        ? (heads <= 2 ? 8 : 4)
                     : kNarrow    ? (heads == 1 ? 4 : 2)
                     : heads == 1 ? 8
                     : heads == 2 ? 4
                                  : 3;
    // Two tiles of 2 rather than one of 3 and one of 1, whose multiply-adds would wait for each
    // other.
    return most == 3 && left == 4 ? 2 : left < most ? left : most;
  }
  // Whether a tile of scores takes so long that it prefetches with every 32 dimensions; otherwise
  // it does once.
  static constexpr bool kLarge(int heads) { return kWide || heads <= 2; }
  // After how many tokens a tile of outputs prefetches.
  static constexpr int ValueTokens(int heads) { return kLarge(heads) ? 1 : 4; }

  // How many calls of a prefetcher's Some there are, about.
  static constexpr int ScoreSites(int heads, int tokens, int head_dim) {
    return (tokens + 15) / 16 * 16 * V::kVectorRegisters * (kLarge(heads) ? head_dim / 32 : 1) /
           Tokens(heads);
  }
  static constexpr int ValueSites(int heads, int tokens, int head_dim) {
    const int registers = (head_dim * V::kVectorRegisters + 15) / 16;
    return registers / Outputs(heads, registers) * (tokens / ValueTokens(heads));
  }
};

// LoadPart gives elements of T times this. It is a power of two, so that q and the outputs can make
// up for it without rounding.
template <typename T>
inline constexpr float kScaleOf = 1;
template <>
inline constexpr float kScaleOf<F8> = kF8Scale;

// The parts in which the head_dim elements of a row are taken: blocks of 32 as two vectors, then 16
// as one if that many are left, then 8 as one filled up with zeros. Which 16 of a block of 32 are
// its first vector is what is cheapest to load: in bf16 the even elements, else the first 16. The
// kernel keeps q and the outputs in this order too.
//
// Registers of a part are counted in the order of memory: of a block of 32 first the first register
// of both vectors, then, with AVX2, the second of both. A part of 8 has one.
enum class Part { k32, k16, k8 };

// Where register i of a part stands in q and in the outputs, in elements from the part's begin on.
template <class V, Part kPart>
constexpr int PlaceOf(int i) {
  constexpr int kLanes = 16 / V::kVectorRegisters, kOf32 = 2 * V::kVectorRegisters;
  return kPart == Part::k32 ? i / kOf32 * 32 + i % 2 * 16 + i % kOf32 / 2 * kLanes : i * kLanes;
}

// Loads register i of one part, or of blocks of 32 that follow each other, times kScaleOf<T>. p:
// where the part begins.
template <class V, Part kPart, int i, typename T>
LAMINA_SIMD typename V::Register LoadPart(const T* p) {
  using R = typename V::Register;
  constexpr int kLanes = 16 / V::kVectorRegisters, kOf32 = 2 * V::kVectorRegisters;
  if constexpr (kPart == Part::k32) p += i / kOf32 * 32;
  if constexpr (std::is_same_v<T, F8>) {
    static_assert(V::kVectorRegisters == 1, "F8 is converted 16 elements at a time");
    if constexpr (kPart == Part::k16) return R::LoadScaled(p);
    if constexpr (kPart == Part::k8) return R::LoadHalfScaled(p);
    if constexpr (kPart == Part::k32)
      return i % 2 == 0 ? R::LoadFirstScaled(p) : R::LoadSecondScaled(p);
  } else if constexpr (kPart == Part::k8) {
    return R::LoadHalf(p);
  } else if constexpr (kPart == Part::k32 && std::is_same_v<T, BF16>) {
    p += i % kOf32 / 2 * (2 * kLanes);
    return i % 2 == 0 ? R::LoadEven(p) : R::LoadOdd(p);
  } else {
    return R::Load(p + PlaceOf<V, kPart>(kPart == Part::k32 ? i % kOf32 : i));
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

// Adds the products of one register of a part to the sums of a tile of scores: sum[h][t] += q[h] *
// the part of rows[t] that begins at `dim`, lane by lane. q: [1 or 2, kHeads, 16], this part of
// each head.
template <class V, Part kPart, int i, typename T, int kHeads, int kTokens>
LAMINA_SIMD void AddProducts(const float* q, const T* const* rows, int dim,
                             typename V::Register (&sum)[kHeads][kTokens]) {
  using R = typename V::Register;
  constexpr int kPlace = PlaceOf<V, kPart>(i);
  q += kPlace / 16 * (kHeads * 16) + kPlace % 16;
  // The fewer of queries and keys stay in registers while the others are loaded one by one.
  if constexpr (kHeads < kTokens) {
    R query[kHeads];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) query[h] = R::Load(q + h * 16).Held();
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const R key = LoadPart<V, kPart, i>(rows[t] + dim);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) sum[h][t] = Fma(query[h], key, sum[h][t]);
    }
  } else {
    R key[kTokens];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) key[t] = LoadPart<V, kPart, i>(rows[t] + dim);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const R query = R::Load(q + h * 16).Held();
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) sum[h][t] = Fma(query, key[t], sum[h][t]);
    }
  }
}

// Prefetches the rows of the next stretch, a few cache lines at a time, between the multiply-adds
// of this one: all at once they would fill the core's queue of misses and hold up its loads.
class LinePrefetcher {
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

// The same a whole row at a time, which takes fewer instructions: for tiles that are bound by them.
class RowPrefetcher {
 public:
  // Begins with the rows [num_rows][dims], to be spread over `num_sites` calls of Some; there may
  // be more calls. Borrows `rows`. REQUIRES: num_sites > 0.
  template <typename T>
  LAMINA_SIMD void Start(const T* const* rows, int num_rows, int dims, int num_sites) {
    row_ = reinterpret_cast<const char* const*>(rows);
    end_ = row_ + num_rows;
    row_bytes_ = dims * static_cast<int>(sizeof(T));
    num_rows_ = num_rows;
    num_sites_ = num_sites;
    due_ = 0;
  }

  // Prefetches the rows that are due by now.
  LAMINA_SIMD void Some() {
    due_ += num_rows_;
    for (; due_ >= num_sites_; due_ -= num_sites_) {
      if (row_ == end_) return;
      const char* row = *row_++;
      for (int i = 0; i < row_bytes_; i += 64) __builtin_prefetch(row + i);
    }
  }

 private:
  const char* const* row_ = nullptr;  // to be prefetched next
  const char* const* end_ = nullptr;
  int row_bytes_ = 0;
  int num_rows_ = 0;
  int num_sites_ = 1;
  int due_ = 0;  // num_rows_ per call, less num_sites_ per row
};

// What the tiles of one stretch prefetch by, whichever heads they have.
template <class V>
struct Prefetcher {
  LinePrefetcher lines;  // of large tiles
  RowPrefetcher rows;    // of the others

  // As LinePrefetcher::Start.
  template <typename T>
  LAMINA_SIMD void Start(const T* const* next, int num_rows, int dims, int num_sites) {
    lines.Start(next, num_rows, dims, num_sites);
    if constexpr (!HeadTiles<V>::kLarge(HeadTiles<V>::kMaxHeads))
      rows.Start(next, num_rows, dims, num_sites);
  }

  // The one of tiles of kHeads heads.
  template <int kHeads>
  LAMINA_SIMD auto& Of() {
    if constexpr (HeadTiles<V>::kLarge(kHeads)) {
      return lines;
    } else {
      return rows;
    }
  }
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
  static constexpr bool kLarge = HeadTiles<V>::kLarge(kHeads);
  using R = typename V::Register;
  const float* q;  // [head_dim / 16 rounded up, kHeads, 16]
  int head_dim;
  std::conditional_t<kLarge, LinePrefetcher, RowPrefetcher> prefetcher;

  // sum[h][t] = register r of q[h] * rows[t], whose lanes have yet to be added up.
  template <int r>
  LAMINA_SIMD void Tile(const T* const* rows, R (&sum)[kHeads][kTokens]) {
    const T* row[kTokens];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) row[t] = rows[t];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) sum[h][t] = R::Zero();
    }
    if constexpr (!kLarge) prefetcher.Some();
    const float* from = q;
    int dim = 0;
    for (; dim + 32 <= head_dim; dim += 32, from += kHeads * 32) {
      if constexpr (kLarge) prefetcher.Some();
      AddProducts<V, Part::k32, 2 * r>(from, row, dim, sum);
      AddProducts<V, Part::k32, 2 * r + 1>(from, row, dim, sum);
    }
    if (dim + 16 <= head_dim) {
      AddProducts<V, Part::k16, r>(from, row, dim, sum);
      dim += 16;
      from += kHeads * 16;
    }
    if constexpr (r == 0) {
      if (dim < head_dim) AddProducts<V, Part::k8, 0>(from, row, dim, sum);
    }
  }

  // Register r of the sums of four tokens each: sums[h][i] of tokens 4i to 4i + 3.
  template <int r>
  LAMINA_SIMD void Fours(const T* const* rows, R (&sums)[kHeads][2]) {
    R pair[kHeads];
#pragma GCC unroll 4
    for (int first = 0; first < 8; first += kTokens) {
      R sum[kHeads][kTokens];
      Tile<r>(rows + first, sum);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; t += 2) {
          const R two = V::Sum2(sum[h][t], sum[h][t + 1]);
          if ((first + t) % 4 == 0) {
            pair[h] = two;
          } else {
            sums[h][(first + t) / 4] = V::Sum4(pair[h], two);
          }
        }
      }
    }
  }

  LAMINA_SIMD void Eight(const T* const* rows, typename V::Sums8 (&sums)[kHeads]) {
    R four[kHeads][2];
    Fours<0>(rows, four);
    if constexpr (V::kVectorRegisters == 2) {
      R rest[kHeads][2];
      Fours<1>(rows, rest);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        four[h][0] = four[h][0] + rest[h][0];
        four[h][1] = four[h][1] + rest[h][1];
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) sums[h] = V::Sum8(four[h][0], four[h][1]);
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
                                  Prefetcher<V>& prefetcher, float* scores) {
  ScoreTiles<V, T, kHeads> tiles = {q, stretch.head_dim, prefetcher.template Of<kHeads>()};
  for (int begin = 0; begin < stretch.num_tokens; begin += 16)
    tiles.Sixteen(stretch.rows + begin, scores + begin);
  prefetcher.template Of<kHeads>() = tiles.prefetcher;
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

// One tile of the outputs of a stretch: registers [kFirst, kFirst + kNum) of a part.
template <class V, Part kPart, typename T, int kHeads, int kFirst, int kNum>
struct ValueTile {
  using R = typename V::Register;
  R sum[kHeads][kNum];

  // Adds the weighted values of one token. row: where the part begins; weights: [kHeads,
  // kTokenBlock], of this token.
  LAMINA_SIMD void Add(const T* row, const float* weights) {
    R value[kNum];
    Load<0>(row, value);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const R weight = R::Set(weights[h * kTokenBlock]);
#pragma GCC unroll 8
      for (int i = 0; i < kNum; ++i) sum[h][i] = Fma(weight, value[i], sum[h][i]);
    }
  }

  template <int i>
  LAMINA_SIMD static void Load(const T* row, R (&value)[kNum]) {
    value[i] = LoadPart<V, kPart, kFirst + i>(row);
    if constexpr (i + 1 < kNum) Load<i + 1>(row, value);
  }

  // out[h] = out[h] * correction[h] + sum over tokens of weights[h][t] * rows[t], for the registers
  // of this tile of the part that begins at `dim`. out: [kHeads, out_stride].
  LAMINA_SIMD void Run(const ValueStretch<T>& stretch, int dim, Prefetcher<V>& prefetcher,
                       float* out, int64_t out_stride) {
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
      for (int i = 0; i < kNum; ++i) sum[h][i] = R::Zero();
    }
    constexpr int kStep = HeadTiles<V>::ValueTokens(kHeads);
    const T* const* rows = stretch.rows;
    const float* weights = stretch.weights;
    const int num_tokens = stretch.num_tokens;
    auto ahead = prefetcher.template Of<kHeads>();
    for (int t = 0; t < num_tokens; ++t) {
      if (t % kStep == 0) ahead.Some();
      Add(rows[t] + dim, weights + t);
    }
    prefetcher.template Of<kHeads>() = ahead;
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const R correction = R::Set(stretch.correction[h]);
#pragma GCC unroll 8
      for (int i = 0; i < kNum; ++i) {
        float* to = out + h * out_stride + dim + PlaceOf<V, kPart>(kFirst + i);
        Fma(R::Load(to), correction, sum[h][i]).Store(to);
      }
    }
  }
};

// The tiles of one part that begins at `dim`, or of blocks of 32 that follow each other: registers
// [kFirst, kEnd). out: [kHeads, out_stride].
template <class V, Part kPart, typename T, int kHeads, int kEnd, int kFirst = 0>
LAMINA_SIMD void ValueTiles(const ValueStretch<T>& stretch, int dim, Prefetcher<V>& prefetcher,
                            float* out, int64_t out_stride) {
  constexpr int kNum = HeadTiles<V>::Outputs(kHeads, kEnd - kFirst);
  ValueTile<V, kPart, T, kHeads, kFirst, kNum> tile;
  tile.Run(stretch, dim, prefetcher, out, out_stride);
  if constexpr (kFirst + kNum < kEnd) {
    ValueTiles<V, kPart, T, kHeads, kEnd, kFirst + kNum>(stretch, dim, prefetcher, out, out_stride);
  }
}

// The weighted sums of all head_dim dimensions: 128 or 64 at a time where one tile or three have
// the registers for as many, then 32, 16 and 8 for what is left. out: [kHeads, out_stride].
template <class V, typename T, int kHeads>
[[gnu::noinline]] void ValueHeads(const ValueStretch<T>& stretch, Prefetcher<V>& prefetcher,
                                  float* out, int64_t out_stride) {
  constexpr int kOf16 = V::kVectorRegisters;
  int dim = 0;
  if constexpr (HeadTiles<V>::Outputs(kHeads, 8) * 16 > 64 * kOf16) {
    for (; dim + 128 <= stretch.head_dim; dim += 128)
      ValueTiles<V, Part::k32, T, kHeads, 8 * kOf16>(stretch, dim, prefetcher, out, out_stride);
  }
  for (; dim + 64 <= stretch.head_dim; dim += 64)
    ValueTiles<V, Part::k32, T, kHeads, 4 * kOf16>(stretch, dim, prefetcher, out, out_stride);
  if (dim + 32 <= stretch.head_dim) {
    ValueTiles<V, Part::k32, T, kHeads, 2 * kOf16>(stretch, dim, prefetcher, out, out_stride);
    dim += 32;
  }
  if (dim + 16 <= stretch.head_dim) {
    ValueTiles<V, Part::k16, T, kHeads, kOf16>(stretch, dim, prefetcher, out, out_stride);
    dim += 16;
  }
  if (dim < stretch.head_dim)
    ValueTiles<V, Part::k8, T, kHeads, 1>(stretch, dim, prefetcher, out, out_stride);
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
  const int groups = NumHeadGroups<V>(heads);
  for (int i = 0; i < groups; ++i) {
    const int first = heads * i / groups, n = heads * (i + 1) / groups - first;
    if constexpr (HeadTiles<V>::kMaxHeads > 2) {
      if (n == 4) f(HeadCount<4>(), first);
      if (n == 3) f(HeadCount<3>(), first);
    }
    if (n == 2) f(HeadCount<2>(), first);
    if (n == 1) f(HeadCount<1>(), first);
  }
}

}  // namespace lamina
