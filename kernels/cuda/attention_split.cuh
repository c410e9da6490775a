// One split of attention (kernels/cuda/attention.h): the part of a row's tokens that a block of threads attends to alone.
#pragma once

#include <math.h>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/vectors.cuh"

namespace lamina::cuda {

inline constexpr int kSplit = kAttentionSplitTokens;
inline constexpr int kSplitThreads = 128;
inline constexpr int kTile = 32;                              // tokens whose K or V is copied together
inline constexpr int kLanesPerToken = kSplitThreads / kTile;  // that copy a row, and add up a score
inline constexpr int kMaxQueries = 8;                         // of a block; larger groups take several, whose second reads come from L2

// Tiles of K and V that a block has in shared memory, all but one of them on their way. A multiprocessor of compute capability 8.6 has 99
// KiB.
template <typename T>
inline constexpr int kStages = sizeof(T) == 4 ? 2 : 4;

// What a launch works on: `num_rows` rows from `first_row` on, `rows_per_block` of them in a block. Blocks: (row tiles x num_splits, kv
// heads x head_tiles). A query is a row and a head; a block's have one kv head.
struct AttentionWork {
  AttentionShape shape;
  KvView kv;
  AttentionBatch batch;
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t num_splits = 0;  // of the longest row
  int rows_per_block = 1;  // rows_per_block * heads_per_block <= kMaxQueries
  int heads_per_block = 1;
  int head_tiles = 1;            // blocks per GQA group
  float* partial_out = nullptr;  // [num_rows, num_splits, num_heads, head_dim] normalised; of rows of more than one split
  float* partial_lse = nullptr;  // [num_rows, num_splits, num_heads]
};

// Bytes from one token to the next in a tile: the eight tokens that a warp reads at a time lie in different banks, two by two.
template <typename T>
__host__ __device__ constexpr int TilePitch(int head_dim) {
  const int row_bytes = head_dim * static_cast<int>(sizeof(T));
  return row_bytes + (64 - row_bytes % 128 + 128) % 128;
}

// Shared memory of a block, in this order.
template <typename T, int kQueries>
struct SplitLayout {
  int head_dim;

  __host__ __device__ int slots_bytes() const { return kSplit * static_cast<int>(sizeof(TokenSlot)); }
  __host__ __device__ int q_bytes() const { return kQueries * head_dim * 4; }     // [kQueries, head_dim]
  __host__ __device__ int scores_bytes() const { return kQueries * kSplit * 4; }  // [kQueries, kSplit], then their weights
  __host__ __device__ int sums_bytes() const { return kQueries * 2 * 4; }         // [kQueries] largest score, [kQueries] sum of weights
  __host__ __device__ int tiles_bytes() const { return kStages<T> * kTile * TilePitch<T>(head_dim); }
  // At the end the tiles' place takes [token groups, kQueries, head_dim] sums.
  __host__ __device__ int tail_bytes() const {
    const int sums = kSplitThreads * kVector * kQueries * 4;
    return tiles_bytes() > sums ? tiles_bytes() : sums;
  }
  __host__ __device__ int sums_at() const { return slots_bytes() + q_bytes() + scores_bytes(); }
  __host__ __device__ int tail_at() const { return (sums_at() + sums_bytes() + 127) / 128 * 128; }
  __host__ __device__ int total_bytes() const { return tail_at() + tail_bytes(); }
};

// The queries of rows [row, row + num_rows), which begin at the same slot. K first, all of it, then the softmax, then V: in a split of this
// size nothing has to be corrected afterwards. What a query computes does not depend on those beside it.
template <typename T, int kQueries>
class Splitter {
 public:
  __device__ Splitter(const AttentionWork& work, int64_t row, int num_rows, int64_t split)
      : work_(work),
        layout_{work.shape.head_dim},
        row_(row),
        split_(split),
        kv_head_(static_cast<int>(blockIdx.y) / work.head_tiles),
        first_head_(kv_head_ * work.shape.group() + static_cast<int>(blockIdx.y) % work.head_tiles * work.heads_per_block),
        thread_(static_cast<int>(threadIdx.x)) {
    const int heads_left = (kv_head_ + 1) * work.shape.group() - first_head_;
    heads_ = heads_left < work.heads_per_block ? heads_left : work.heads_per_block;
    num_queries_ = num_rows * heads_;
    num_tokens_ = 0;
    for (int i = 0; i < num_rows; ++i) {
      const int tokens = TokensOfRow(row + i);
      num_tokens_ = tokens > num_tokens_ ? tokens : num_tokens_;
    }
    num_tiles_ = (num_tokens_ + kTile - 1) / kTile;
  }

  // All threads of the block call it; nothing happens if none of the rows has tokens in this split.
  __device__ void Run() {
    if (num_tokens_ == 0) return;
    const TokenSlot* const row_slots = work_.batch.slots + work_.batch.rows[row_].first_slot + split_ * kSplit;
    for (int t = thread_; t < num_tokens_; t += kSplitThreads) slots()[t] = row_slots[t];
    LoadQueries();
    __syncthreads();

    for (int i = 0; i < kStages<T> - 1; ++i) StartTile(i);
    float out[kQueries][kVector] = {};
    for (int i = 0; i < 2 * num_tiles_; ++i) {
      WaitForCopies<kStages<T> - 2>();
      __syncthreads();  // everybody's copies are there, and nobody reads the stage that is filled next; at num_tiles_ all scores are there
      StartTile(i + kStages<T> - 1);
      if (i == num_tiles_) Weigh();
      if (i < num_tiles_) {
        Score(i);
      } else {
        AddValues(i, out);
      }
    }
    __syncthreads();
    AddGroups(out);
  }

 private:
  __device__ unsigned char* at(int bytes) const { return SharedMemory() + bytes; }
  __device__ TokenSlot* slots() const { return reinterpret_cast<TokenSlot*>(at(0)); }
  __device__ float* q() const { return reinterpret_cast<float*>(at(layout_.slots_bytes())); }
  __device__ float* scores() const { return reinterpret_cast<float*>(at(layout_.slots_bytes() + layout_.q_bytes())); }
  __device__ float* maxima() const { return reinterpret_cast<float*>(at(layout_.sums_at())); }
  __device__ float* sums() const { return maxima() + kQueries; }
  __device__ T* TileRow(int tile, int token) const {
    return reinterpret_cast<T*>(at(layout_.tail_at() + (tile % kStages<T> * kTile + token) * TilePitch<T>(work_.shape.head_dim)));
  }
  __device__ int num_vectors() const { return work_.shape.head_dim / kVector; }
  __device__ int TokensOfTile(int tile) const {
    const int left = num_tokens_ - tile % num_tiles_ * kTile;
    return left < kTile ? left : kTile;
  }

  // Tokens of a row in this split, from its beginning on.
  __device__ int TokensOfRow(int64_t row) const {
    const int64_t left = work_.batch.rows[row].num_tokens - split_ * kSplit;
    return left < 0 ? 0 : left < kSplit ? static_cast<int>(left) : kSplit;
  }
  __device__ int64_t RowOf(int query) const { return row_ + query / heads_; }
  __device__ int HeadOf(int query) const { return first_head_ + query % heads_; }

  __device__ void LoadQueries() {
    const int head_dim = work_.shape.head_dim;
    for (int i = thread_; i < kQueries * head_dim; i += kSplitThreads) {
      const int query = i / head_dim;
      const int64_t from = (RowOf(query) * work_.shape.num_heads + HeadOf(query)) * head_dim + i % head_dim;
      q()[i] = query < num_queries_ ? LoadAs(work_.batch.q, work_.batch.q_dtype, from) : 0.0f;
    }
  }

  // Tiles [0, num_tiles_) are K's, the next as many V's. Beyond them there is nothing to copy, but a group to wait for.
  __device__ void StartTile(int tile) {
    const int token = thread_ / kLanesPerToken;
    if (tile < 2 * num_tiles_ && token < TokensOfTile(tile)) {
      const T* const from = static_cast<const T*>(tile < num_tiles_ ? work_.kv.k : work_.kv.v) + kv_head_ * work_.kv.head_stride +
                            static_cast<int64_t>(slots()[tile % num_tiles_ * kTile + token]) * work_.kv.slot_stride;
      T* const to = TileRow(tile, token);
      for (int i = thread_ % kLanesPerToken; i < num_vectors(); i += kLanesPerToken) CopyVectorAsync(to + i * kVector, from + i * kVector);
    }
    CommitCopies();
  }

  __device__ void Score(int tile) {
    const int token = thread_ / kLanesPerToken, lane = thread_ % kLanesPerToken;
    float score[kQueries] = {};
    if (token < TokensOfTile(tile)) {
      const T* const k_row = TileRow(tile, token);
      for (int i = lane; i < num_vectors(); i += kLanesPerToken) {
        float k[kVector];
        LoadVector(k_row + i * kVector, k);
        LAMINA_UNROLL
        for (int n = 0; n < kQueries; ++n) {
          float query[kVector];
          LoadVector(q() + n * work_.shape.head_dim + i * kVector, query);
          LAMINA_UNROLL
          for (int j = 0; j < kVector; ++j) score[n] = fmaf(query[j], k[j], score[n]);
        }
      }
    }
    const float soft_cap = work_.shape.soft_cap;
    LAMINA_UNROLL
    for (int n = 0; n < kQueries; ++n) {
      LAMINA_UNROLL
      for (int lanes = kLanesPerToken / 2; lanes > 0; lanes /= 2) score[n] += __shfl_xor_sync(kAllLanes, score[n], lanes);
      if (n % kLanesPerToken != lane || token >= TokensOfTile(tile)) continue;
      const float scaled = score[n] * work_.shape.scale;
      scores()[n * kSplit + tile * kTile + token] = soft_cap > 0 ? soft_cap * tanhf(scaled / soft_cap) : scaled;
    }
  }

  static constexpr float kNotAttended = -1.0f;  // instead of a weight, where a query's row has no such token

  // Scores become weights exp(score - largest score). A warp for each query.
  __device__ void Weigh() {
    const int lane = thread_ % kWarpSize;
    for (int n = thread_ / kWarpSize; n < kQueries; n += kSplitThreads / kWarpSize) {
      float* const of_query = scores() + n * kSplit;
      const int tokens = n < num_queries_ ? TokensOfRow(RowOf(n)) : 0;
      float max = -INFINITY, sum = 0;
      for (int t = lane; t < tokens; t += kWarpSize) max = fmaxf(max, of_query[t]);
      max = WarpMax(max);
      for (int t = lane; t < num_tokens_; t += kWarpSize) {
        const float weight = expf(of_query[t] - max);
        of_query[t] = t < tokens ? weight : kNotAttended;
        sum += t < tokens ? weight : 0.0f;
      }
      sum = WarpSum(sum);
      if (lane == 0) {
        maxima()[n] = max;
        sums()[n] = sum;
      }
    }
    __syncthreads();
  }

  // A thread adds up eight elements of every query, over every num_groups-th token of the tile.
  __device__ int num_groups() const { return kSplitThreads / num_vectors(); }
  __device__ void AddValues(int tile, float (&out)[kQueries][kVector]) {
    const int vector = thread_ % num_vectors(), group = thread_ / num_vectors(), first = tile % num_tiles_ * kTile;
    if (group >= num_groups()) return;
    for (int t = group; t < TokensOfTile(tile); t += num_groups()) {
      float v[kVector];
      LoadVector(TileRow(tile, t) + vector * kVector, v);
      LAMINA_UNROLL
      for (int n = 0; n < kQueries; ++n) {
        const float weight = scores()[n * kSplit + first + t];
        if (weight == kNotAttended) continue;
        LAMINA_UNROLL
        for (int j = 0; j < kVector; ++j) out[n][j] = fmaf(weight, v[j], out[n][j]);
      }
    }
  }

  // Adds up what the groups have, and writes it. REQUIRES: nobody reads a tile any more.
  __device__ void AddGroups(const float (&out)[kQueries][kVector]) {
    float* const all = reinterpret_cast<float*>(at(layout_.tail_at()));
    const int head_dim = work_.shape.head_dim, vector = thread_ % num_vectors(), group = thread_ / num_vectors();
    if (group < num_groups()) {
      LAMINA_UNROLL
      for (int n = 0; n < kQueries; ++n) {
        LAMINA_UNROLL
        for (int j = 0; j < kVector; ++j) all[(group * kQueries + n) * head_dim + vector * kVector + j] = out[n][j];
      }
    }
    __syncthreads();
    for (int i = thread_; i < num_queries_ * head_dim; i += kSplitThreads) {
      const int query = i / head_dim;
      if (TokensOfRow(RowOf(query)) == 0) continue;
      float sum = 0;
      for (int g = 0; g < num_groups(); ++g) sum += all[g * kQueries * head_dim + i];
      Write(query, i % head_dim, sum / sums()[query]);
    }
    for (int n = thread_; n < num_queries_; n += kSplitThreads) {
      if (TokensOfRow(RowOf(n)) > 0) WriteLse(n, maxima()[n] + logf(sums()[n]));
    }
  }

  // A row of one split has its result at once.
  __device__ bool IsAlone(int query) const { return work_.batch.rows[RowOf(query)].num_tokens <= kSplit; }
  __device__ int64_t PartialHead(int query) const {
    return ((RowOf(query) - work_.first_row) * work_.num_splits + split_) * work_.shape.num_heads + HeadOf(query);
  }
  __device__ int64_t OutputHead(int query) const { return RowOf(query) * work_.shape.num_heads + HeadOf(query); }

  __device__ void Write(int query, int d, float x) {
    if (IsAlone(query)) {
      StoreAs(x, work_.batch.out, work_.batch.out_dtype, OutputHead(query) * work_.shape.head_dim + d);
    } else {
      work_.partial_out[PartialHead(query) * work_.shape.head_dim + d] = x;
    }
  }
  __device__ void WriteLse(int query, float lse) {
    if (!IsAlone(query)) {
      work_.partial_lse[PartialHead(query)] = lse;
    } else if (work_.batch.lse != nullptr) {
      work_.batch.lse[OutputHead(query)] = lse;
    }
  }

  const AttentionWork& work_;
  const SplitLayout<T, kQueries> layout_;
  const int64_t row_, split_;
  const int kv_head_, first_head_, thread_;
  int heads_, num_queries_;
  int num_tokens_, num_tiles_;  // of the row that has most
};

// Rows of a block that begin at the same slot are attended to together.
template <typename T, int kQueries>
__global__ void AttendSplits(const __grid_constant__ AttentionWork work) {
  const int64_t split = blockIdx.x % work.num_splits, end = work.first_row + work.num_rows;
  const int64_t begin = work.first_row + blockIdx.x / work.num_splits * work.rows_per_block;
  int64_t row = begin;
  while (row < end && row < begin + work.rows_per_block) {
    int num_rows = 1;
    while (row + num_rows < end && row + num_rows < begin + work.rows_per_block &&
           work.batch.rows[row + num_rows].first_slot == work.batch.rows[row].first_slot) {
      ++num_rows;
    }
    Splitter<T, kQueries>(work, row, num_rows, split).Run();
    row += num_rows;  // what the last rows' sums stand in is written again behind the first barrier of the next
  }
}

}  // namespace lamina::cuda
