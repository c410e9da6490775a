// A split of attention on tensor cores, for K and V of 16 or 8 bits and head_dims that are
// multiples of 16: 16 tokens x 8 queries at a time. With fewer queries the rest of a product is for
// nothing, which still takes far fewer instructions than multiply-add units do (attention_fma.cuh).
//
// Queries and weights are split into two parts (two_parts.cuh) of the type of K and V, or of F16 if
// that has 8 bits. An infinite V may come out as NaN.
//
// Scales of K and V (kernels/attention_shape.h) are multiplied with scores and weights. Weights
// times scales can have any magnitude, and those that are large may come last: so whenever the
// largest of a query's is larger than those before it, what has been added up is brought to the new
// power of two.
#pragma once

#include "kernels/cuda/attention_split.cuh"
#include "kernels/cuda/tensor_cores.cuh"
#include "kernels/cuda/tile_fragments.cuh"
#include "kernels/cuda/two_parts.cuh"

namespace lamina::cuda {

// 16 bytes of padding, in elements, put rows that are loaded together into different banks.
template <typename T>
inline constexpr int kRowPad = 16 / sizeof(T);

// At the end the place of the tiles takes the warps' sums: [kWarps, kMaxQueries, head_dim] fp32.
template <int kDims>
inline constexpr int kWarpSumBytes = kWarps* kMaxQueries* kDims * 4;

// T: the type of elements of K and V; kSteps: the most steps of kStep dims that a row of K has;
// kScaled: K and V have scales, which takes a T of 8 bits.
template <typename T, int kSteps, bool kScaled>
class TensorSplit : private SplitBase<T, kMaxQueries, kSteps * kStep, kRowPad<T>,
                                      kWarpSumBytes<kSteps * kStep>, kScaled> {
  using Base =
      SplitBase<T, kMaxQueries, kSteps * kStep, kRowPad<T>, kWarpSumBytes<kSteps * kStep>, kScaled>;

 public:
  using typename Base::Layout;
  // All queries of the block are multiplied with all V of a tile, so their rows must have the same
  // tokens: V of a token that a row does not have may be NaN.
  static constexpr bool kNeedsEvenRows = true;
  // Blocks that a multiprocessor of compute capability 9.0 has shared memory for, and so registers.
  static constexpr int kBlocks = kSteps <= 8 ? 4 : 2;

  // REQUIRES: head_dim is a multiple of kStep, at most kSteps of them.
  __device__ TensorSplit(const AttentionWork& work, int64_t row, int num_rows, int split)
      : Base(work, row, num_rows, split, kSteps * kStep / kVector),
        major_(lane_ / 4),
        minor_(lane_ % 4 * 2) {}

  // Computes the split and writes its results. All threads of the block call it together.
  __device__ void Run() {
    if (!this->Begin()) return;
    const float max = ScoreAll(), finite = max == -INFINITY ? 0.0f : max;
    float out[kSteps][4] = {}, sum = 0;
    for (int i = num_tiles_; i < 2 * num_tiles_; ++i) {
      this->AwaitTile();
      AddValues(i, finite, out, sum);
      this->ReplaceTile(i);
    }
    AddWarps(out, max, sum);
  }

 private:
  using Base::FirstToken;
  using Base::lane_;
  using Base::maxima;
  using Base::num_tiles_;
  using Base::num_tokens_;
  using Base::parts;
  using Base::q;
  using Base::scores;
  using Base::sums;
  using Base::TileRow;
  using Base::warp_;
  using Base::work_;

  using Loaded = Fragments<T>;
  using Part = typename Loaded::Multiplied;

  // Loads whose results are in registers at a time, so that not every product waits for one.
  static constexpr int kLoads = kSteps / Loaded::kSteps < 4 ? kSteps / Loaded::kSteps : 4;

  // Brings weights, which are at most 1, to the upper end of fp16 (two_parts.cuh). Those times
  // scales have weight_exponent_ instead.
  static constexpr float kWeightScale = std::is_same_v<Part, F16> && !kScaled ? 32768 : 1;
  // Where weight_exponent_ begins: the largest that ExponentFor gives.
  static constexpr int kMostExponent = 114;

  // This lane's part of operand b of MultiplyAdd, in two parts.
  struct Factor {
    uint32_t high[2], low[2];
  };
  __device__ static Factor FactorOf(const float (&x)[4]) {
    const TwoParts a = Split<Part>(x[0], x[1]), b = Split<Part>(x[2], x[3]);
    return {{a.high, b.high}, {a.low, b.low}};
  }
  // Two elements from `at` on and two that are `apart` behind them, times a power of two.
  __device__ static Factor QueriesAt(const float* at, int apart, float scale) {
    return FactorOf({at[0] * scale, at[1] * scale, at[apart] * scale, at[apart + 1] * scale});
  }
  // This lane's weights of a tile: four for each of its steps, of query major_.
  using Weights = float[Loaded::kSteps][4];
  // The token of the tile that weight j of step s is of.
  __device__ int TokenOfWeight(int s, int j) const {
    return s * kStep + minor_ + j % 2 + j / 2 * 8;
  }
  // From the tile's scores, relative to `max`; they are also added to `sum`.
  __device__ void FindWeights(int tile, float max, Weights& weights, float& sum) const {
    const float* const of_tile = scores() + major_ * kScoresPitch + FirstToken(tile);
    LAMINA_UNROLL
    for (int s = 0; s < Loaded::kSteps; ++s) {
      LAMINA_UNROLL
      for (int j = 0; j < 4; ++j) {
        const float weight = Exp(of_tile[TokenOfWeight(s, j)] - max);
        sum += weight;
        weights[s][j] = weight * kWeightScale;
      }
    }
  }

  // Multiplies weights by the scales of V and by 2^weight_exponent_, which first follows the
  // largest of them, and `out` with it.
  __device__ void MultiplyByScales(int tile, Weights& weights, float (&out)[kSteps][4]) {
    float largest = 0;
    LAMINA_UNROLL
    for (int s = 0; s < Loaded::kSteps; ++s) {
      LAMINA_UNROLL
      for (int j = 0; j < 4; ++j) {
        weights[s][j] *= this->ScaleOf(tile, TokenOfWeight(s, j));
        largest = fmaxf(largest, fabsf(weights[s][j]));  // without those that are NaN
      }
    }
    for (int lanes = 1; lanes < 4; lanes *= 2)
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, lanes));
    const int exponent = largest > 0 ? ExponentFor(largest) : kMostExponent,
              lowered = exponent < weight_exponent_ ? exponent - weight_exponent_ : 0;
    weight_exponent_ += lowered;
    // What would be lowered by more is nothing beside the new weights.
    const float change = lowered > -126 ? PowerOfTwo(lowered) : 0.0f;
    const float changes[2] = {__shfl_sync(kAllLanes, change, minor_ * 4),
                              __shfl_sync(kAllLanes, change, minor_ * 4 + 4)};
    if (changes[0] != 1 || changes[1] != 1) {
      LAMINA_UNROLL
      for (int b = 0; b < kSteps; ++b) {
        LAMINA_UNROLL
        for (int j = 0; j < 4; ++j) out[b][j] *= changes[j % 2];
      }
    }
    const float power = PowerOfTwo(weight_exponent_);
    LAMINA_UNROLL
    for (int s = 0; s < Loaded::kSteps; ++s) {
      LAMINA_UNROLL
      for (float& weight : weights[s]) weight *= power;
    }
  }

  // The exponent of the power of two by which the query of this lane's column is scaled. bf16 has
  // fp32's range and needs none.
  __device__ int QueryExponent() const {
    if constexpr (std::is_same_v<Part, F16>) {
      float largest = 0;
      LAMINA_UNROLL
      for (int d = 0; d < kSteps * kStep; d += 4)
        largest = fmaxf(largest, fabsf(q()[major_ * kSteps * kStep + d + lane_ % 4]));
      for (int lanes = 2; lanes > 0; lanes /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, lanes));
      return ExponentFor(largest);
    } else {
      return 0;
    }
  }

  // Computes all scores of the warp's tokens, as products of tokens x queries. Returns the largest
  // one of query major_.
  __device__ float ScoreAll() {
    const int exponent = QueryExponent();
    Factor queries[kSteps];
    LAMINA_UNROLL
    for (int s = 0; s < kSteps; ++s)
      queries[s] = QueriesAt(q() + (major_ * kSteps + s) * kStep + Loaded::FirstDim(lane_),
                             Loaded::kDimsApart, ldexpf(1.0f, exponent));
    __syncthreads();  // scores take the place of q
    float scale[2];   // of the two queries whose scores this lane gets
    LAMINA_UNROLL
    for (int j = 0; j < 2; ++j)
      scale[j] = ldexpf(work_.shape.scale, -__shfl_sync(kAllLanes, exponent, (minor_ + j) * 4));
    float max[2] = {-INFINITY, -INFINITY};  // of the same queries
    for (int i = 0; i < num_tiles_; ++i) {
      this->AwaitTile();
      LAMINA_UNROLL
      for (int first = 0; first < kTile<T>; first += kStep) Score(i, first, queries, scale, max);
      this->ReplaceTile(i);
    }
    for (int lanes = 4; lanes < kWarpSize; lanes *= 2) {
      LAMINA_UNROLL
      for (float& x : max) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, lanes));
    }
    const float even = __shfl_sync(kAllLanes, max[0], major_ / 2),
                odd = __shfl_sync(kAllLanes, max[1], major_ / 2);
    return major_ % 2 == 0 ? even : odd;
  }

  __device__ float Capped(float score) const {
    const float cap = work_.shape.soft_cap;
    return cap > 0 ? cap * tanhf(score / cap) : score;
  }

  // Scores of the 16 tokens of a tile from `first` on, and the largest ones so far. Behind a tile's
  // last token the memory holds anything, and the scores of that are -infinity.
  __device__ void Score(int tile, int first, const Factor (&queries)[kSteps],
                        const float (&scale)[2], float (&max)[2]) {
    const T* const k_row = TileRow(tile, first + Loaded::TokenOfK(lane_)) + Loaded::DimOfK(lane_);
    float high[4] = {}, low[4] = {};
    LAMINA_UNROLL
    for (int begin = 0; begin < kSteps; begin += kLoads * Loaded::kSteps) {
      Loaded k[kLoads];
      LAMINA_UNROLL
      for (int i = 0; i < kLoads; ++i) k[i].LoadK(k_row + (begin + i * Loaded::kSteps) * kStep);
      LAMINA_UNROLL
      for (int i = 0; i < kLoads * Loaded::kSteps; ++i) {
        uint32_t a[4];
        k[i / Loaded::kSteps].GetK(i % Loaded::kSteps, a);
        MultiplyAdd<Part>(a, queries[begin + i].high, high);
        MultiplyAdd<Part>(a, queries[begin + i].low, low);
      }
    }
    const int token = FirstToken(tile) + first + major_;
    float* const to = scores() + minor_ * kScoresPitch + token;
    float scale_of_k[2] = {1, 1};  // of this lane's two tokens
    if constexpr (kScaled) {
      LAMINA_UNROLL
      for (int i = 0; i < 2; ++i) scale_of_k[i] = this->ScaleOf(tile, first + major_ + i * 8);
    }
    LAMINA_UNROLL
    for (int j = 0; j < 4; ++j) {  // elements of (token, query)
      float product = (high[j] + low[j]) * scale[j % 2];
      if constexpr (kScaled) product *= scale_of_k[j / 2];
      const float score = token + j / 2 * 8 < num_tokens_ ? Capped(product) : -INFINITY;
      max[j % 2] = fmaxf(max[j % 2], score);
      to[j % 2 * kScoresPitch + j / 2 * 8] = score;
    }
  }

  // Adds the tile's weighted values, as products of dims x queries, and this lane's weights.
  __device__ void AddValues(int tile, float max, float (&out)[kSteps][4], float& sum) {
    Weights each;
    FindWeights(tile, max, each, sum);
    if constexpr (kScaled) MultiplyByScales(tile, each, out);
    Factor weights[Loaded::kSteps];
    LAMINA_UNROLL
    for (int s = 0; s < Loaded::kSteps; ++s) weights[s] = FactorOf(each[s]);
    const T* const v_row = TileRow(tile, Loaded::TokenOfV(lane_)) + Loaded::DimOfV(lane_);
    LAMINA_UNROLL
    for (int begin = 0; begin < kSteps; begin += kLoads) {
      Loaded v[kLoads];
      LAMINA_UNROLL
      for (int i = 0; i < kLoads; ++i) v[i].LoadV(v_row + (begin + i) * kStep);
      LAMINA_UNROLL
      for (int i = 0; i < kLoads * Loaded::kSteps; ++i) {  // a step of all dims, then the next
        const int step = i / kLoads, load = i % kLoads;
        uint32_t a[4];
        v[load].GetV(step, a);
        MultiplyAdd<Part>(a, weights[step].high, out[begin + load]);
        MultiplyAdd<Part>(a, weights[step].low, out[begin + load]);
      }
    }
  }

  // Adds up the sums of all warps and writes the outputs.
  __device__ void AddWarps(const float (&out)[kSteps][4], float max, float sum) {
    float undo[2] = {1, 1};  // what has scaled the two queries of this lane's columns
    if constexpr (kScaled) {
      LAMINA_UNROLL
      for (int j = 0; j < 2; ++j)
        undo[j] = PowerOfTwo(-__shfl_sync(kAllLanes, weight_exponent_, (minor_ + j) * 4));
    }
    for (int lanes = 1; lanes < 4; lanes *= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
    if (lane_ % 4 == 0) {
      maxima()[warp_ * kMaxQueries + major_] = max;
      sums()[warp_ * kMaxQueries + major_] = sum;
    }
    __syncthreads();  // the sums take the place of tiles
    float* const of_warp = parts() + (warp_ * kMaxQueries + minor_) * kSteps * kStep;
    LAMINA_UNROLL
    for (int b = 0; b < kSteps; ++b) {
      LAMINA_UNROLL
      for (int j = 0; j < 4; ++j)  // elements of (dim, query)
        of_warp[(j % 2 * kSteps + b) * kStep + Loaded::DimOfRow(major_ + j / 2 * 8)] =
            out[b][j] * undo[j % 2];
    }
    __syncthreads();
    this->WriteOutputs(1, kWeightScale);
  }

  // A load of V has all tokens of a tile.
  static_assert(kTile<T> == Loaded::kSteps * kStep && kSteps % Loaded::kSteps == 0);

  const int major_, minor_;  // row and first column of this lane's elements (tensor_cores.cuh)
  // Of the power of two by which the weights of query major_, times scales, are multiplied.
  int weight_exponent_ = kMostExponent;
};

}  // namespace lamina::cuda
