// A split of attention on tensor cores, for GQA groups of 4 query heads and more, and K and V of 16
// or 8 bits: 16 tokens x 8 queries at a time.
//
// Queries and weights are split into two parts (two_parts.cuh) of the type of K and V, or of F16 if
// that is F8. An infinite V may come out as NaN. 8 queries take about a quarter of the instructions
// that they take on the multiply-add units (attention_fma.cuh), so that memory should bound groups
// of 8 too.
#pragma once

#include "kernels/cuda/attention_split.cuh"
#include "kernels/cuda/tensor_cores.cuh"
#include "kernels/cuda/tile_fragments.cuh"
#include "kernels/cuda/two_parts.cuh"

namespace lamina::cuda {

// 16 bytes of padding, in elements, put rows that are loaded together into different banks.
template <typename T>
inline constexpr int kRowPad = 16 / sizeof(T);

// T: the type of K and V; kSteps: the most steps of kStep dims that a row of K has.
template <typename T, int kSteps>
class TensorSplit : private SplitBase<T, kMaxQueries, kRowPad<T>, 0> {
  using Base = SplitBase<T, kMaxQueries, kRowPad<T>, 0>;

 public:
  using Base::kNumStages;
  using typename Base::Layout;
  // All queries of the block are multiplied with all V of a tile, so their rows must have the same
  // tokens: V of a token that a row does not have may be NaN.
  static constexpr bool kNeedsEvenRows = true;

  // REQUIRES: head_dim is a multiple of kStep, at most kSteps of them.
  __device__ TensorSplit(const AttentionWork& work, int64_t row, int num_rows, int split)
      : Base(work, row, num_rows, split),
        num_steps_(work.shape.head_dim / kStep),
        warp_(thread_ / kWarpSize),
        lane_(thread_ % kWarpSize),
        major_(lane_ / 4),
        minor_(lane_ % 4 * 2) {}

  // Computes the split and writes its results. All threads of the block call it together.
  template <class Copies>
  __device__ void Run(Copies& copies) {
    if (!this->Begin(copies)) return;
    ScoreAll(copies);
    float out[kBlocks][4] = {};
    for (int i = num_tiles_; i < 2 * num_tiles_; ++i) {
      this->NextTile(i, copies);  // has a barrier, behind which all scores are written
      if (i == num_tiles_) this->Weigh(0.0f, num_tiles_ * kTile);
      AddValues(i, out);
    }
    WriteOutputs(out);
    WriteSums();
  }

 private:
  using Base::FirstToken;
  using Base::num_queries_;
  using Base::num_tiles_;
  using Base::q;
  using Base::RowOf;
  using Base::scores;
  using Base::sums;
  using Base::thread_;
  using Base::TileRow;
  using Base::TokensOfRow;
  using Base::TokensOfTile;
  using Base::work_;
  using Base::Write;
  using Base::WriteSums;

  using Loaded = Fragments<T>;
  using Part = typename Loaded::Multiplied;

  // Brings weights, which are at most 1, to the upper end of fp16 (two_parts.cuh).
  static constexpr float kWeightScale = std::is_same_v<Part, F16> ? 32768 : 1;
  static constexpr int kWarps = kSplitThreads / kWarpSize;
  // Blocks of kStep dims of V that a warp adds up.
  static constexpr int kBlocks = (kSteps + kWarps - 1) / kWarps;

  // This lane's part of operand b of MultiplyAdd, in two parts. FactorAt reads two elements from
  // `at` on and two that are `apart` behind them, and multiplies them by `scale`, a power of two.
  struct Factor {
    uint32_t high[2], low[2];
  };
  __device__ static Factor FactorAt(const float* at, int apart, float scale) {
    const TwoParts a = Split<Part>(at[0] * scale, at[1] * scale),
                   b = Split<Part>(at[apart] * scale, at[apart + 1] * scale);
    return {{a.high, b.high}, {a.low, b.low}};
  }

  // The exponent of the power of two by which the query of this lane's column is scaled. bf16 has
  // fp32's range and needs none.
  __device__ int QueryExponent() const {
    if constexpr (std::is_same_v<Part, F16>) {
      float largest = 0;
      for (int d = lane_ % 4; d < work_.shape.head_dim; d += 4)
        largest = fmaxf(largest, fabsf(q()[major_ * work_.shape.head_dim + d]));
      for (int lanes = 2; lanes > 0; lanes /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, lanes));
      return ExponentFor(largest);
    } else {
      return 0;
    }
  }

  // Computes all scores, as products of tokens x queries. A tile has two times 16 tokens, so two of
  // the four warps work on one tile and the other two on the next.
  template <class Copies>
  __device__ void ScoreAll(Copies& copies) {
    const int exponent = QueryExponent();
    Factor queries[kSteps];
    LAMINA_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      const float* const at =
          q() + major_ * work_.shape.head_dim + s * kStep + Loaded::FirstDim(lane_);
      if (s < num_steps_) queries[s] = FactorAt(at, Loaded::kDimsApart, ldexpf(1.0f, exponent));
    }
    float scale[2];  // of the two queries whose scores this lane gets
    LAMINA_UNROLL
    for (int j = 0; j < 2; ++j)
      scale[j] = ldexpf(work_.shape.scale, -__shfl_sync(kAllLanes, exponent, (minor_ + j) * 4));
    for (int i = 0; i < num_tiles_; ++i) {
      this->NextTile(i, copies);
      if (warp_ / 2 == i % 2) Score(i, warp_ % 2 * kStep, queries, scale);
    }
  }

  // Scores of the 16 tokens of a tile from `first` on. Behind a tile's last token the memory holds
  // anything, and those scores are not stored.
  __device__ void Score(int tile, int first, const Factor (&queries)[kSteps],
                        const float (&scale)[2]) {
    const T* const k_row = TileRow(tile, first + Loaded::TokenOfK(lane_)) + Loaded::DimOfK(lane_);
    float high[4] = {}, low[4] = {};
    Loaded k[2];  // this step's and the next one's, which is loaded while this one is multiplied
    k[0].LoadK(k_row);
    LAMINA_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      if (s >= num_steps_) continue;
      const int next = s + 1;
      if (next % Loaded::kSteps == 0 && next < num_steps_)
        k[next / Loaded::kSteps % 2].LoadK(k_row + next * kStep);
      uint32_t a[4];
      k[s / Loaded::kSteps % 2].GetK(s % Loaded::kSteps, a);
      MultiplyAdd<Part>(a, queries[s].high, high);
      MultiplyAdd<Part>(a, queries[s].low, low);
    }
    LAMINA_UNROLL
    for (int j = 0; j < 4; ++j) {  // elements of (token, query)
      const int token = first + major_ + j / 2 * 8, query = minor_ + j % 2;
      if (token < TokensOfTile(tile))
        scores()[query * kScoresPitch + FirstToken(tile) + token] =
            this->Capped((high[j] + low[j]) * scale[j % 2]);
    }
  }

  // Adds the tile's weighted values, as products of dims x queries: each warp has its own dims,
  // over all tokens.
  __device__ void AddValues(int tile, float (&out)[kBlocks][4]) {
    Loaded v[kBlocks];
    LAMINA_UNROLL
    for (int s = 0; s < kTile / kStep; ++s) {
      const Factor weights =
          FactorAt(scores() + major_ * kScoresPitch + FirstToken(tile) + s * kStep + minor_, 8,
                   kWeightScale);
      const T* const v_row =
          TileRow(tile, s * kStep + Loaded::TokenOfV(lane_)) + Loaded::DimOfV(lane_);
      LAMINA_UNROLL
      for (int b = 0; b < kBlocks; ++b) {
        if (BlockAt(b) >= num_steps_) continue;
        if (s % Loaded::kSteps == 0) v[b].LoadV(v_row + BlockAt(b) * kStep);
        uint32_t a[4];
        v[b].GetV(s % Loaded::kSteps, a);
        MultiplyAdd<Part>(a, weights.high, out[b]);
        MultiplyAdd<Part>(a, weights.low, out[b]);
      }
    }
  }

  __device__ void WriteOutputs(const float (&out)[kBlocks][4]) {
    LAMINA_UNROLL
    for (int j = 0; j < 4; ++j) {  // elements of (dim, query)
      const int query = minor_ + j % 2;
      if (query >= num_queries_ || TokensOfRow(RowOf(query)) == 0) continue;
      LAMINA_UNROLL
      for (int b = 0; b < kBlocks; ++b) {
        const int dim = BlockAt(b) * kStep + Loaded::DimOfRow(major_ + j / 2 * 8);
        if (BlockAt(b) < num_steps_) Write(query, dim, out[b][j] / (sums()[query] * kWeightScale));
      }
    }
  }

  // The number of this warp's b-th block of dims.
  __device__ int BlockAt(int b) const { return warp_ + b * kWarps; }

  const int num_steps_;
  const int warp_, lane_;
  const int major_, minor_;  // row and first column of this lane's elements (tensor_cores.cuh)
};

}  // namespace lamina::cuda
