// One split of attention (kernels/cuda/attention.h): the part of a row's tokens that a block of
// threads attends to alone. K first, all of it, then the softmax, then V: in a split of this size
// nothing has to be corrected afterwards. What a query computes does not depend on those beside it.
//
// Here is what all ways to multiply have in common; attention_fma.cuh and attention_tensor.cuh
// multiply.
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
// Of a block; larger groups take several, whose second reads come from L2.
inline constexpr int kMaxQueries = 8;
// Scores of a token for eight queries lie in different banks.
inline constexpr int kScoresPitch = kSplit + 4;

// Tiles of K and V that a block has in shared memory, most or all of them on their way
// (tile_copies.cuh): as many bytes of every type. A multiprocessor of compute capability 8.6 has 99
// KiB.
template <typename T>
inline constexpr int kStages = 8 / sizeof(T);

// What a launch works on: `num_rows` rows from `first_row` on, `rows_per_block` of them in a block.
// Blocks: (row tiles x num_splits, kv heads x head_tiles). A query is a row and a head; a block's
// have one kv head.
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
  // [num_rows, num_splits, num_heads, head_dim] normalised; of rows of more than one split.
  float* partial_out = nullptr;
  float* partial_lse = nullptr;  // [num_rows, num_splits, num_heads]
};

// Tokens of a row in a split, from its beginning on.
__device__ inline int TokensInSplit(const AttentionWork& work, int64_t row, int split) {
  const int64_t left = work.batch.rows[row].num_tokens - int64_t{split} * kSplit;
  return left < 0 ? 0 : left < kSplit ? static_cast<int>(left) : kSplit;
}

// Lanes that share a row of K or V, eight elements each; those beyond the row have nothing to do.
// At least one for each query, which is what adding up takes (attention_fma.cuh).
__host__ __device__ constexpr int LanesPerRow(int head_dim) {
  const int vectors = head_dim / kVector;
  return vectors <= kMaxQueries ? kMaxQueries : vectors <= 16 ? 16 : kWarpSize;
}

// Shared memory of a block, in this order. kPad: elements between rows of tiles; padded rows of F8
// are an odd number of 16 bytes apart, as those of 16 bits are anyway, and end behind a multiple of
// 32 elements. kTailBytes: what the tiles' place has at least.
template <typename T, int kQueries, int kPad, int kTailBytes>
struct SplitLayout {
  int head_dim;

  __host__ __device__ int row_elements() const {
    return (kPad > 0 && sizeof(T) == 1 ? (head_dim + 31) / 32 * 32 : head_dim) + kPad;
  }
  __host__ __device__ int slots_bytes() const {
    return kSplit * static_cast<int>(sizeof(TokenSlot));
  }
  // [kQueries, head_dim].
  __host__ __device__ int q_bytes() const { return kQueries * head_dim * 4; }
  // [kQueries, kScoresPitch], then their weights.
  __host__ __device__ int scores_bytes() const { return kQueries * kScoresPitch * 4; }
  // [kQueries] largest score, [kQueries] sum of weights.
  __host__ __device__ int sums_bytes() const { return kQueries * 2 * 4; }
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

// The queries of rows [row, row + num_rows), which begin at the same slot.
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
  // Tiles [0, num_tiles_) are K's, the next as many V's.
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

  // Makes slots() and q() ready and starts the first tiles; false where there is nothing to attend
  // to.
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

  __device__ void LoadQueries() {
    const int head_dim = work_.shape.head_dim;
    for (int i = thread_; i < kQueries * head_dim; i += kSplitThreads) {
      const int query = i / head_dim;
      const int64_t from =
          (RowOf(query) * work_.shape.num_heads + HeadOf(query)) * head_dim + i % head_dim;
      q()[i] = query < num_queries_ ? LoadAs(work_.batch.q, work_.batch.q_dtype, from) : 0.0f;
    }
  }

  // What this thread copies. Of F8 that is twice as many elements as it computes with, so half of
  // the lanes copy a row.
  __device__ TilePart Part() const {
    if constexpr (kCopied<T> == kVector) {
      return {num_groups_, group_, vector_, has_vector_};
    } else {
      const int lanes = lanes_ / 2, vector = thread_ % lanes;
      return {2 * num_groups_, thread_ / lanes, vector, vector * kCopied<T> < work_.shape.head_dim};
    }
  }

  // Beyond the last tile there are no rows.
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

  // Rows behind V's last token are zero where rows are padded, for tensor cores: those multiply
  // them too.
  __device__ void ClearBehind(int tile, int tokens) {
    const TilePart part = Part();
    for (int t = part.group; t < kTile; t += part.num_groups) {
      if (t >= tokens && part.has_vector)
        *reinterpret_cast<Words4*>(TileRow(tile, t) + part.vector * kCopied<T>) = Words4{};
    }
  }

  // Tile i is there for everybody, and nobody reads the stage that is filled next.
  template <class Copies>
  __device__ void NextTile(int i, Copies& copies) {
    copies.Next(i % kStages<T>, [&] { StartTile(i + kStages<T> - 1, copies); });
  }

  __device__ float Capped(float score) const {
    const float soft_cap = work_.shape.soft_cap;
    return soft_cap > 0 ? soft_cap * tanhf(score / soft_cap) : score;
  }

  // Scores become weights exp(score - largest score), and `not_attended` where a query's row has no
  // such token, up to token `end`. A warp for each query.
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

  __device__ void WriteSums() {
    for (int n = thread_; n < num_queries_; n += kSplitThreads) {
      if (TokensOfRow(RowOf(n)) > 0) WriteLse(n, maxima()[n] + logf(sums()[n]));
    }
  }

  // A row of one split or none has its result at once.
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
  // Of threads that share a row: how many, how many such groups, which one, which elements.
  const int lanes_, num_groups_, group_, vector_;
  const bool has_vector_;  // the row has these elements
  int heads_, num_queries_;
  int num_tokens_, num_tiles_;  // of the row that has most
  bool is_even_;                // all have as many
};

}  // namespace lamina::cuda
