// One split of attention (kernels/cuda/attention.h): the part of a row's tokens that one block of
// threads attends to. A block takes all of K first, then the softmax, then V: all scores of a split
// fit into shared memory, so nothing has to be corrected afterwards as in an online softmax. A
// query's result does not depend on the queries that it shares a block with.
//
// This file has the parts that do not depend on how products are computed; attention_fma.cuh and
// attention_tensor.cuh have two ways to compute them.
#pragma once

#include <math.h>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/tile_copies.cuh"
#include "kernels/cuda/vectors.cuh"

namespace lamina::cuda {

inline constexpr int kSplit = kAttentionSplitTokens;
inline constexpr int kSplitThreads = 128;
inline constexpr int kTile = 32;  // tokens whose K or V is copied together
// The most queries of a block. Larger GQA groups take several blocks, of which all but the first
// read K and V from the L2 cache.
inline constexpr int kMaxQueries = 8;
// Elements between the scores of one query and of the next. The extra 4 put the scores of a token
// for eight queries into different banks.
inline constexpr int kScoresPitch = kSplit + 4;

// Tiles of K and V that have room in a block's shared memory, most or all of them in flight
// (tile_copies.cuh): the same number of bytes for every type. A multiprocessor of compute
// capability 8.6 has 99 KiB.
template <typename T>
inline constexpr int kStages = 8 / sizeof(T);

// What a launch computes: `num_rows` rows from `first_row` on, `rows_per_block` of them in a block.
// The grid is (row tiles x num_splits, kv_heads x head_tiles). A query is a query head of a row;
// all queries of a block have the same kv_head.
struct AttentionWork {
  AttentionShape shape;
  KvView kv;
  AttentionBatch batch;
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int num_splits = 0;      // of the longest row
  int rows_per_block = 1;  // rows_per_block * heads_per_block <= kMaxQueries
  int heads_per_block = 1;
  int head_tiles = 1;  // blocks per GQA group
  // Partials of rows that have more than one split; device memory.
  float* partial_out = nullptr;  // [num_rows, num_splits, num_heads, head_dim] fp32, normalised
  float* partial_lse = nullptr;  // [num_rows, num_splits, num_heads] fp32
};

// How many tokens of a row are in a split. They are the split's first ones.
__device__ inline int TokensInSplit(const AttentionWork& work, int64_t row, int split) {
  const int64_t left = work.batch.rows[row].num_tokens - int64_t{split} * kSplit;
  return left < 0 ? 0 : left < kSplit ? static_cast<int>(left) : kSplit;
}

// The lanes that share a row of K or V, eight elements each; lanes beyond the row's end have
// nothing to do. There is at least one for each query, which FmaSplit::AddLanes requires.
__host__ __device__ constexpr int LanesPerRow(int head_dim) {
  const int vectors = head_dim / kVector;
  return vectors <= kMaxQueries ? kMaxQueries : vectors <= 16 ? 16 : kWarpSize;
}

// The layout of a block's shared memory: slots, q, scores, sums, barriers, tiles, in this order.
//
// kPad: elements of padding behind each row of a tile. Padded rows of F8 are first rounded up to a
// multiple of 32 elements, so that a load of 32 dims ends within the row, and rows are an odd
// number of 16 bytes apart, as rows of 16 bits are anyway: rows that are loaded together then lie
// in different banks. kTailBytes: the least size of the place of the tiles, which is used for sums
// at the end.
template <typename T, int kQueries, int kPad, int kTailBytes>
struct SplitLayout {
  int head_dim;

  __host__ __device__ int row_elements() const {
    return (kPad > 0 && sizeof(T) == 1 ? (head_dim + 31) / 32 * 32 : head_dim) + kPad;
  }
  __host__ __device__ int slots_bytes() const {
    return kSplit * static_cast<int>(sizeof(TokenSlot));
  }
  // [kQueries, head_dim] fp32.
  __host__ __device__ int q_bytes() const { return kQueries * head_dim * 4; }
  // [kQueries, kScoresPitch] fp32: scores, which Weigh replaces by weights.
  __host__ __device__ int scores_bytes() const { return kQueries * kScoresPitch * 4; }
  // [kQueries] fp32, the largest score, and [kQueries] fp32, the sum of weights.
  __host__ __device__ int sums_bytes() const { return kQueries * 2 * 4; }
  // [kStages, kTile, row_elements] of T.
  __host__ __device__ int tiles_bytes() const {
    return kStages<T> * kTile * row_elements() * static_cast<int>(sizeof(T));
  }
  __host__ __device__ int sums_at() const { return slots_bytes() + q_bytes() + scores_bytes(); }
  __host__ __device__ int barriers_at() const { return sums_at() + sums_bytes(); }
  __host__ __device__ int barriers_bytes() const {
    return kStages<T> * static_cast<int>(sizeof(Mbarrier));
  }
  __host__ __device__ int tail_at() const {
    return (barriers_at() + barriers_bytes() + 127) / 128 * 128;
  }
  __host__ __device__ int total_bytes() const {
    return tail_at() + (tiles_bytes() > kTailBytes ? tiles_bytes() : kTailBytes);
  }
};

// One split of rows [row, row + num_rows), which begin at the same slot, for the block's query
// heads. T: the type of K and V; kQueries: the queries that the block has room for.
template <typename T, int kQueries, int kPad, int kTailBytes>
class SplitBase {
 public:
  using Layout = SplitLayout<T, kQueries, kPad, kTailBytes>;
  static constexpr int kNumStages = kStages<T>;

 protected:
  __device__ SplitBase(const AttentionWork& work, int64_t row, int num_rows, int split)
      : work_(work),
        layout_{work.shape.head_dim},
        row_(row),
        split_(split),
        kv_head_(static_cast<int>(blockIdx.y) / work.head_tiles),
        first_head_(kv_head_ * work.shape.group() +
                    static_cast<int>(blockIdx.y) % work.head_tiles * work.heads_per_block),
        thread_(static_cast<int>(threadIdx.x)),
        lanes_(LanesPerRow(work.shape.head_dim)),
        num_groups_(kSplitThreads / lanes_),
        group_(thread_ / lanes_),
        vector_(thread_ % lanes_),
        has_vector_(vector_ * kVector < work.shape.head_dim),
        is_even_(true) {
    const int heads_left = (kv_head_ + 1) * work.shape.group() - first_head_;
    heads_ = heads_left < work.heads_per_block ? heads_left : work.heads_per_block;
    num_queries_ = num_rows * heads_;
    num_tokens_ = 0;
    for (int i = 0; i < num_rows; ++i) {
      const int tokens = TokensOfRow(row + i);
      num_tokens_ = tokens > num_tokens_ ? tokens : num_tokens_;
    }
    for (int i = 0; i < num_rows; ++i) is_even_ &= TokensOfRow(row + i) == num_tokens_;
    num_tiles_ = (num_tokens_ + kTile - 1) / kTile;
  }

  __device__ unsigned char* at(int bytes) const { return SharedMemory() + bytes; }
  __device__ TokenSlot* slots() const { return reinterpret_cast<TokenSlot*>(at(0)); }
  __device__ float* q() const { return reinterpret_cast<float*>(at(layout_.slots_bytes())); }
  __device__ float* scores() const {
    return reinterpret_cast<float*>(at(layout_.slots_bytes() + layout_.q_bytes()));
  }
  __device__ float* maxima() const { return reinterpret_cast<float*>(at(layout_.sums_at())); }
  __device__ float* sums() const { return maxima() + kQueries; }
  __device__ T* TileRow(int tile, int token) const {
    return reinterpret_cast<T*>(at(layout_.tail_at())) +
           (tile % kStages<T> * kTile + token) * layout_.row_elements();
  }
  // Tiles are numbered: [0, num_tiles_) are those of K, [num_tiles_, 2 * num_tiles_) those of V.
  __device__ int FirstToken(int tile) const {
    return (tile < num_tiles_ ? tile : tile - num_tiles_) * kTile;
  }
  __device__ int TokensOfTile(int tile) const {
    const int left = num_tokens_ - FirstToken(tile);
    return left < kTile ? left : kTile;
  }

  __device__ int TokensOfRow(int64_t row) const { return TokensInSplit(work_, row, split_); }
  __device__ int64_t RowOf(int query) const { return row_ + query / heads_; }
  __device__ int HeadOf(int query) const { return first_head_ + query % heads_; }

  // Fills slots() and q() and starts the first tiles. Returns false if no row has tokens in this
  // split. Also writes the results of rows without tokens, if this is the first split.
  template <class Copies>
  __device__ bool Begin(Copies& copies) {
    if (split_ == 0) WriteEmptyRows();
    if (num_tokens_ == 0) return false;
    const TokenSlot* const row_slots =
        work_.batch.slots + work_.batch.rows[row_].first_slot + int64_t{split_} * kSplit;
    for (int t = thread_; t < num_tokens_; t += kSplitThreads) slots()[t] = row_slots[t];
    LoadQueries();
    copies.HandOver();
    for (int i = 0; i < kStages<T> - 1; ++i) StartTile(i, copies);
    return true;
  }

  __device__ void WriteEmptyRows() {
    for (int i = thread_; i < num_queries_ * work_.shape.head_dim; i += kSplitThreads) {
      const int query = i / work_.shape.head_dim;
      if (TokensOfRow(RowOf(query)) == 0) Write(query, i % work_.shape.head_dim, 0.0f);
    }
    for (int n = thread_; n < num_queries_; n += kSplitThreads) {
      if (TokensOfRow(RowOf(n)) == 0) WriteLse(n, -INFINITY);
    }
  }

  // Queries that the block has room for and that do not exist are zero.
  __device__ void LoadQueries() {
    const int head_dim = work_.shape.head_dim;
    for (int i = thread_; i < kQueries * head_dim; i += kSplitThreads) {
      const int query = i / head_dim;
      const int64_t from =
          (RowOf(query) * work_.shape.num_heads + HeadOf(query)) * head_dim + i % head_dim;
      q()[i] = query < num_queries_ ? LoadAs(work_.batch.q, work_.batch.q_dtype, from) : 0.0f;
    }
  }

  // The part of a tile that this thread copies. Of F8 it copies twice as many elements as it
  // computes with, so half as many lanes copy a row.
  __device__ TilePart Part() const {
    if constexpr (kCopied<T> == kVector) {
      return {num_groups_, group_, vector_, has_vector_};
    } else {
      const int lanes = lanes_ / 2, vector = thread_ % lanes;
      return {2 * num_groups_, thread_ / lanes, vector, vector * kCopied<T> < work_.shape.head_dim};
    }
  }

  // Starts to copy tile number `tile`; one beyond the last has no rows.
  template <class Copies>
  __device__ void StartTile(int tile, Copies& copies) {
    const bool is_v = tile >= num_tiles_;
    const int tokens = tile < 2 * num_tiles_ ? TokensOfTile(tile) : 0;
    const T* const from =
        static_cast<const T*>(is_v ? work_.kv.v : work_.kv.k) + kv_head_ * work_.kv.head_stride;
    const TileRows<T> rows = {TileRow(tile, 0),     layout_.row_elements(),     from,
                              work_.kv.slot_stride, slots() + FirstToken(tile), tokens,
                              work_.shape.head_dim};
    copies.Start(tile % kStages<T>, rows, Part());
    if (kPad > 0 && is_v && tokens > 0 && tokens < kTile) ClearBehind(tile, tokens);
  }

  // Clears the rows of a tile of V behind its last token. Tensor cores (where rows are padded)
  // multiply these rows too, by weights of 0, and 0 times NaN is NaN.
  __device__ void ClearBehind(int tile, int tokens) {
    const TilePart part = Part();
    for (int t = part.group; t < kTile; t += part.num_groups) {
      if (t >= tokens && part.has_vector)
        *reinterpret_cast<Words4*>(TileRow(tile, t) + part.vector * kCopied<T>) = Words4{};
    }
  }

  // Waits until tile i is there for all threads, and starts the tile kStages - 1 further on in the
  // stage that no thread reads any more.
  template <class Copies>
  __device__ void NextTile(int i, Copies& copies) {
    copies.Next(i % kStages<T>, [&] { StartTile(i + kStages<T> - 1, copies); });
  }

  __device__ float Capped(float score) const {
    const float soft_cap = work_.shape.soft_cap;
    return soft_cap > 0 ? soft_cap * tanhf(score / soft_cap) : score;
  }

  // Replaces the scores of tokens [0, end) by weights exp(score - largest score), or by
  // `not_attended` where a query's row does not have the token, and sets maxima() and sums(). One
  // warp for each query.
  __device__ void Weigh(float not_attended, int end) {
    const int lane = thread_ % kWarpSize;
    for (int n = thread_ / kWarpSize; n < kQueries; n += kSplitThreads / kWarpSize) {
      float* const of_query = scores() + n * kScoresPitch;
      const int tokens = n < num_queries_ ? TokensOfRow(RowOf(n)) : 0;
      float max = -INFINITY, sum = 0;
      for (int t = lane; t < tokens; t += kWarpSize) max = fmaxf(max, of_query[t]);
      max = WarpMax(max);
      for (int t = lane; t < end; t += kWarpSize) {
        const float weight = expf(of_query[t] - max);
        of_query[t] = t < tokens ? weight : not_attended;
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

  // Writes the log-sum-exps.
  __device__ void WriteSums() {
    for (int n = thread_; n < num_queries_; n += kSplitThreads) {
      if (TokensOfRow(RowOf(n)) > 0) WriteLse(n, maxima()[n] + logf(sums()[n]));
    }
  }

  // Whether the query's row has only one split: its result is then written to the output, and not
  // as a partial.
  __device__ bool IsAlone(int query) const {
    return work_.batch.rows[RowOf(query)].num_tokens <= kSplit;
  }
  __device__ int64_t PartialHead(int query) const {
    return ((RowOf(query) - work_.first_row) * work_.num_splits + split_) * work_.shape.num_heads +
           HeadOf(query);
  }
  __device__ int64_t OutputHead(int query) const {
    return RowOf(query) * work_.shape.num_heads + HeadOf(query);
  }

  __device__ void Write(int query, int d, float x) {
    if (IsAlone(query)) {
      StoreAs(x, work_.batch.out, work_.batch.out_dtype,
              OutputHead(query) * work_.shape.head_dim + d);
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
  const Layout layout_;
  const int64_t row_;
  const int split_;
  const int kv_head_, first_head_, thread_;
  // lanes_ threads share a row of K or V; there are num_groups_ such groups, this thread is in
  // group_ and has the vector_-th eight elements.
  const int lanes_, num_groups_, group_, vector_;
  const bool has_vector_;  // rows have these elements
  int heads_, num_queries_;
  int num_tokens_, num_tiles_;  // in this split, of the row that has most
  bool is_even_;                // all rows have as many tokens in this split
};

}  // namespace lamina::cuda
