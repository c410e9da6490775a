// A split of attention on the fp32 multiply-add units, for what tensor cores do not take: K and V
// in fp32, and head_dims that are no multiple of 16.
//
// A thread keeps its eight elements of all queries in registers and reads each element of K once
// for all of them, and the sums of all queries over the lanes of a row are added up together.
#pragma once

#include "kernels/cuda/attention_split.cuh"

namespace lamina::cuda {

// At the end the place of the tiles takes the groups' sums: [num_groups, kQueries, head_dim] fp32.
template <int kQueries>
inline constexpr int kGroupSumBytes = kSplitThreads* kVector* kQueries * 4;

// T: the type of K and V; kQueries: a power of two.
template <typename T, int kQueries>
class FmaSplit : private SplitBase<T, kQueries, 0, 0, kGroupSumBytes<kQueries>> {
  using Base = SplitBase<T, kQueries, 0, 0, kGroupSumBytes<kQueries>>;

 public:
  using typename Base::Layout;
  static constexpr bool kNeedsEvenRows = false;
  static constexpr int kBlocks = 1;  // at least; registers are not what limits them

  __device__ FmaSplit(const AttentionWork& work, int64_t row, int num_rows, int split)
      : Base(work, row, num_rows, split, LanesPerRow(work.shape.head_dim)) {}

  // Computes the split and writes its results. All threads of the block call it together.
  __device__ void Run() {
    if (!this->Begin()) return;
    ScoreAll();
    Weigh();
    float out[kQueries][kVector] = {};
    for (int i = num_tiles_; i < 2 * num_tiles_; ++i) {
      this->AwaitTile();
      AddValues(i, out);
      this->ReplaceTile(i);
    }
    AddGroups(out);
  }

 private:
  using Base::FirstToken;
  using Base::group_;
  using Base::has_vector_;
  using Base::is_even_;
  using Base::lane_;
  using Base::lanes_;
  using Base::maxima;
  using Base::num_groups_;
  using Base::num_queries_;
  using Base::num_tiles_;
  using Base::parts;
  using Base::q;
  using Base::queries;
  using Base::scores;
  using Base::sums;
  using Base::TileRow;
  using Base::TokensOfTile;
  using Base::vector_;
  using Base::warp_;
  using Base::work_;

  // Stands for a weight where a query's row does not have the token; weights are not negative.
  static constexpr float kNotAttended = -1.0f;

  // Computes all scores. Two tokens at a time, so that the sums of one are added up while the
  // products of the other are computed.
  __device__ void ScoreAll() {
    float query[kQueries][kVector];
    LAMINA_UNROLL
    for (int n = 0; n < kQueries; ++n)
      LoadVector(q() + n * work_.shape.head_dim + (has_vector_ ? vector_ : 0) * kVector, query[n]);
    __syncthreads();  // scores take the place of q
    const int lanes_per_query = lanes_ / kQueries, step = num_groups_ * work_.shape.head_dim;
    const bool writes = vector_ % lanes_per_query == 0;
    const float scale = work_.shape.scale;
    for (int i = 0; i < num_tiles_; ++i) {
      this->AwaitTile();
      const int tokens = writes ? TokensOfTile(i) - group_ : 0;
      float* const to =
          scores() + vector_ / lanes_per_query * kScoresPitch + FirstToken(i) + group_;
      const T* k_row = TileRow(i, group_) + vector_ * kVector;
      for (int t = 0; t < kTile<T>; t += 2 * num_groups_, k_row += 2 * step) {
        float first[kQueries] = {}, second[kQueries] = {};
        if (has_vector_) {
          Multiply(query, k_row, first);
          Multiply(query, k_row + step, second);
        }
        const float first_sum = AddLanes(first), second_sum = AddLanes(second);
        if (t < tokens) to[t] = first_sum * scale;
        if (t + num_groups_ < tokens) to[t + num_groups_] = second_sum * scale;
      }
      this->ReplaceTile(i);
    }
  }

  // This lane's part of the products of all queries with one token of K. Behind a tile's last token
  // the memory holds anything, and those scores are not stored.
  __device__ static void Multiply(const float (&query)[kQueries][kVector], const T* k_row,
                                  float (&score)[kQueries]) {
    float k[kVector];
    LoadVector(k_row, k);
    LAMINA_UNROLL
    for (int n = 0; n < kQueries; ++n) {
      LAMINA_UNROLL
      for (int j = 0; j < kVector; ++j) score[n] = fmaf(query[n][j], k[j], score[n]);
    }
  }

  // Adds up each of kQueries values over the lanes of a row. Lane i gets the sum of query i /
  // (lanes / kQueries). In each step the two halves of the lanes exchange half of their values and
  // go on with the other half, so that 8 values take 7 exchanges and not 8 per step. The order in
  // which a sum is added up is the same for any number of queries.
  __device__ float AddLanes(float (&value)[kQueries]) const {
    int lanes = lanes_ / 2;
    LAMINA_UNROLL
    for (int left = kQueries / 2; left > 0; left /= 2) {
      const bool is_upper = (vector_ & lanes) != 0;
      LAMINA_UNROLL
      for (int n = 0; n < left; ++n) {
        const float given = is_upper ? value[n] : value[n + left],
                    kept = is_upper ? value[n + left] : value[n];
        value[n] = kept + __shfl_xor_sync(kAllLanes, given, lanes);
      }
      lanes /= 2;
    }
    for (; lanes > 0; lanes /= 2) value[0] += __shfl_xor_sync(kAllLanes, value[0], lanes);
    return value[0];
  }

  // Once all warps have written their scores: caps them and replaces them by weights exp(score -
  // largest score of all), or by kNotAttended where a query's row does not have the token, and sets
  // maxima() and sums(), the first warp's sum to that of all. One warp for each query.
  __device__ void Weigh() {
    __syncthreads();
    const float soft_cap = work_.shape.soft_cap;
    for (int n = warp_; n < num_queries_; n += kWarps) {
      float* const of_lane = scores() + n * kScoresPitch + lane_;
      const int tokens = queries()[n].num_tokens - lane_;  // behind this lane's first one
      float score[kSplit / kWarpSize], max = -INFINITY, sum = 0;
      LAMINA_UNROLL
      for (int i = 0; i < kSplit / kWarpSize; ++i) {
        score[i] = i * kWarpSize < tokens ? of_lane[i * kWarpSize] : -INFINITY;
      }
      if (soft_cap > 0) {
        for (float& x : score) x = x == -INFINITY ? x : soft_cap * tanhf(x / soft_cap);
      }
      for (const float x : score) max = fmaxf(max, x);
      max = WarpMax(max);
      LAMINA_UNROLL
      for (int i = 0; i < kSplit / kWarpSize; ++i) {
        const float weight = i * kWarpSize < tokens ? expf(score[i] - max) : 0.0f;
        of_lane[i * kWarpSize] = i * kWarpSize < tokens ? weight : kNotAttended;
        sum += weight;
      }
      sum = WarpSum(sum);
      if (lane_ < kWarps) {
        maxima()[lane_ * kQueries + n] = max;
        sums()[lane_ * kQueries + n] = lane_ == 0 ? sum : 0.0f;
      }
    }
    __syncthreads();
  }

  // Adds the tile's weighted values to this thread's sums: eight elements of every query, over
  // every num_groups_-th token of the tile.
  __device__ void AddValues(int tile, float (&out)[kQueries][kVector]) {
    if (!has_vector_) return;
    if (is_even_) return AddValues</*kChecks=*/false>(tile, out);
    AddValues</*kChecks=*/true>(tile, out);
  }

  // With kChecks, tokens that a query's row does not have are left out. Their V may be NaN, so a
  // weight of 0 would not do.
  template <bool kChecks>
  __device__ void AddValues(int tile, float (&out)[kQueries][kVector]) {
    const float* const weights = scores() + FirstToken(tile);
    for (int t = group_; t < TokensOfTile(tile); t += num_groups_) {
      float v[kVector];
      LoadVector(TileRow(tile, t) + vector_ * kVector, v);
      LAMINA_UNROLL
      for (int n = 0; n < kQueries; ++n) {
        const float weight = weights[n * kScoresPitch + t];
        if (kChecks && weight == kNotAttended) continue;
        LAMINA_UNROLL
        for (int j = 0; j < kVector; ++j) out[n][j] = fmaf(weight, v[j], out[n][j]);
      }
    }
  }

  // Adds up the sums of all groups of all warps and writes the outputs.
  __device__ void AddGroups(const float (&out)[kQueries][kVector]) {
    __syncthreads();  // the sums take the place of tiles
    const int head_dim = work_.shape.head_dim, group = warp_ * num_groups_ + group_;
    if (has_vector_) {
      LAMINA_UNROLL
      for (int n = 0; n < kQueries; ++n) {
        LAMINA_UNROLL
        for (int j = 0; j < kVector; ++j)
          parts()[(group * kQueries + n) * head_dim + vector_ * kVector + j] = out[n][j];
      }
    }
    __syncthreads();
    this->WriteOutputs(num_groups_, 1.0f);
  }
};

}  // namespace lamina::cuda
