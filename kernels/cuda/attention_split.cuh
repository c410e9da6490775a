// One split of attention (kernels/cuda/attention.h): the part of a row's tokens that one block of
// threads attends to. A block takes all of K first, then the softmax, then V: all scores of a split
// fit into shared memory, so nothing has to be corrected afterwards as in an online softmax. A
// query's result does not depend on the queries that it shares a block with.
//
// The split's tokens are divided into tiles, and each of the block's warps takes every fourth tile:
// it copies K of its tiles and computes their scores, later V, without waiting for the other warps.
// Weights are relative to a largest score, which may be another one for each warp; so at the end,
// when the warps' sums are added up, they are brought to the largest of all.
//
// What bounds it where memory does not is the number of instructions, of which few are products:
// so shared memory has rows of a length that the compiler knows wherever it can, and whatever is
// the same for many elements is computed once.
//
// This file has the parts that do not depend on how products are computed; attention_fma.cuh and
// attention_tensor.cuh have two ways to compute them.
#pragma once

#include <math.h>

#include <type_traits>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/vectors.cuh"

namespace lamina::cuda {

inline constexpr int kSplit = kAttentionSplitTokens;
inline constexpr int kSplitThreads = 128;
inline constexpr int kWarps = kSplitThreads / kWarpSize;
inline constexpr int kMostDims = 256;
// The most queries of a block. Larger GQA groups take several blocks, of which all but the first
// read K and V from the L2 cache.
inline constexpr int kMaxQueries = 8;
// Elements between the scores of one query and of the next. The extra 4 put the scores of a token
// for eight queries into different banks.
inline constexpr int kScoresPitch = kSplit + 4;

// Tokens whose K or V is copied together: the same number of bytes for every type.
template <typename T>
inline constexpr int kTile = 32 / sizeof(T);
// Slots that are loaded from shared memory at a time, so that copies do not each wait for one. What
// a lane copies of a tile (SplitBase::PartOfTile) is a multiple of as many rows.
template <typename T>
using SlotsOf = std::conditional_t<sizeof(T) <= 2, Words4, Words2>;
// Tiles of a warp that have room in shared memory, all of which may be in flight. A multiprocessor
// of compute capability 8.6 has 99 KiB, into which rows of 256 dims have to fit.
inline constexpr int kStages = 2;

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

// A query of a block.
struct SplitQuery {
  int64_t head;     // of the output, or of the partials: row or split, times num_heads, plus head
  int num_tokens;   // of its row, in this split
  bool is_partial;  // its row has several splits
};

// The layout of a block's shared memory: slots, queries, q or scores, sums, tiles, in this order.
//
// kDims: dims that rows have room for, or 0 for just head_dim. kPad: elements of padding behind
// each row of a tile; an odd number of 16 bytes puts rows that are loaded together into different
// banks. kTailBytes: the least size of the place of the tiles, which is used for sums at the end.
template <typename T, int kQueries, int kDims, int kPad, int kTailBytes>
struct SplitLayout {
  int head_dim;

  __host__ __device__ constexpr int dims() const { return kDims > 0 ? kDims : head_dim; }
  __host__ __device__ constexpr int pitch() const { return dims() + kPad; }
  // [kSplit] slots.
  __host__ __device__ constexpr int queries_at() const {
    return kSplit * static_cast<int>(sizeof(TokenSlot));
  }
  // [kQueries] SplitQuery.
  __host__ __device__ constexpr int q_at() const {
    return queries_at() + kQueries * static_cast<int>(sizeof(SplitQuery));
  }
  // q, [kQueries, dims] fp32, and in the same place scores, [kQueries, kScoresPitch] fp32.
  __host__ __device__ constexpr int sums_at() const {
    return q_at() + kQueries * (dims() > kScoresPitch ? dims() : kScoresPitch) * 4;
  }
  // [kWarps, kQueries] fp32, the largest scores, and as many sums of weights.
  __host__ __device__ constexpr int tiles_at() const {
    return (sums_at() + kWarps * kQueries * 2 * 4 + 127) / 128 * 128;
  }
  // [kWarps, kStages, kTile, pitch] of T.
  __host__ __device__ constexpr int tiles_bytes() const {
    return kWarps * kStages * kTile<T> * pitch() * static_cast<int>(sizeof(T));
  }
  __host__ __device__ constexpr int total_bytes() const {
    return tiles_at() + (tiles_bytes() > kTailBytes ? tiles_bytes() : kTailBytes);
  }
};

// One split of rows [row, row + num_rows), which begin at the same slot, for the block's query
// heads. T: the type of K and V; kQueries: the queries that the block has room for.
// kScaled: K and V have scales. The scale of a token lies in the first bytes of the padding behind
// its row of a tile, and is copied with it.
template <typename T, int kQueries, int kDims, int kPad, int kTailBytes, bool kScaled = false>
class SplitBase {
  static_assert(!kScaled || (kDims > 0 && kPad * sizeof(T) >= sizeof(float)));

 public:
  using Layout = SplitLayout<T, kQueries, kDims, kPad, kTailBytes>;

 protected:
  // lanes: those that share a row of K or V, eight elements each.
  __device__ SplitBase(const AttentionWork& work, int64_t row, int num_rows, int split, int lanes)
      : work_(work),
        layout_{work.shape.head_dim},
        row_(row),
        split_(split),
        kv_head_(static_cast<int>(blockIdx.y) / work.head_tiles),
        first_head_(kv_head_ * work.shape.group() +
                    static_cast<int>(blockIdx.y) % work.head_tiles * work.heads_per_block),
        thread_(static_cast<int>(threadIdx.x)),
        warp_(thread_ / kWarpSize),
        lane_(thread_ % kWarpSize),
        lanes_(lanes),
        num_groups_(kWarpSize / lanes_),
        group_(lane_ / lanes_),
        vector_(lane_ % lanes_),
        has_vector_(vector_ * kVector < work.shape.head_dim),
        is_even_(true) {
    const int heads_left = (kv_head_ + 1) * work.shape.group() - first_head_;
    heads_ = heads_left < work.heads_per_block ? heads_left : work.heads_per_block;
    num_queries_ = num_rows * heads_;
    num_tokens_ = TokensInSplit(work_, row, split_);
    for (int i = 1; i < num_rows; ++i) {
      const int tokens = TokensInSplit(work_, row + i, split_);
      is_even_ &= tokens == num_tokens_;
      num_tokens_ = tokens > num_tokens_ ? tokens : num_tokens_;
    }
    const int tiles = (num_tokens_ + kTile<T> - 1) / kTile<T>;
    num_tiles_ = (tiles - warp_ + kWarps - 1) / kWarps;
  }

  __device__ unsigned char* at(int bytes) const { return SharedMemory() + bytes; }
  __device__ TokenSlot* slots() const { return reinterpret_cast<TokenSlot*>(at(0)); }
  __device__ SplitQuery* queries() const {
    return reinterpret_cast<SplitQuery*>(at(layout_.queries_at()));
  }
  __device__ float* q() const { return reinterpret_cast<float*>(at(layout_.q_at())); }
  __device__ float* scores() const { return reinterpret_cast<float*>(at(layout_.q_at())); }
  // Of each warp, [kWarps, kQueries]: the score that its weights are relative to, and their sum.
  __device__ float* maxima() const { return reinterpret_cast<float*>(at(layout_.sums_at())); }
  __device__ float* sums() const { return maxima() + kWarps * kQueries; }
  // [parts, kQueries, dims] fp32, in the place of the tiles.
  __device__ float* parts() const { return reinterpret_cast<float*>(at(layout_.tiles_at())); }
  // A warp numbers its tiles: [0, num_tiles_) are those of K, [num_tiles_, 2 * num_tiles_) of V.
  __device__ T* TileRow(int tile, int token) const {
    return reinterpret_cast<T*>(at(layout_.tiles_at())) +
           ((warp_ * kStages + tile % kStages) * kTile<T> + token) * layout_.pitch();
  }
  // The scale of that K or V.
  __device__ float& ScaleOf(int tile, int token) const {
    return *reinterpret_cast<float*>(TileRow(tile, token) + layout_.dims());
  }
  __device__ int FirstToken(int tile) const {
    return ((tile < num_tiles_ ? tile : tile - num_tiles_) * kWarps + warp_) * kTile<T>;
  }
  __device__ int TokensOfTile(int tile) const {
    const int left = num_tokens_ - FirstToken(tile);
    return left < kTile<T> ? left : kTile<T>;
  }

  // Fills slots(), queries() and q() and starts the warp's first tiles. Returns false if no row has
  // tokens in this split. Also writes the results of rows without tokens, if this is the first
  // split. All loads are on their way before the first is waited for.
  __device__ bool Begin() {
    if (num_tokens_ > 0) {
      const TokenSlot* const of_row =
          work_.batch.slots + work_.batch.rows[row_].first_slot + int64_t{split_} * kSplit;
      TokenSlot slot[kSplit / kSplitThreads];
      LAMINA_UNROLL
      for (int i = 0; i < kSplit / kSplitThreads; ++i) {
        const int token = thread_ + i * kSplitThreads;
        slot[i] = token < num_tokens_ ? of_row[token] : 0;
      }
      LoadQueries();
      LAMINA_UNROLL
      for (int i = 0; i < kSplit / kSplitThreads; ++i) {
        const int token = thread_ + i * kSplitThreads;
        if (token < num_tokens_) slots()[token] = slot[i];
      }
    }
    if (thread_ < num_queries_) queries()[thread_] = Query(thread_);
    __syncthreads();
    if (split_ == 0) WriteEmptyRows();
    if (num_tokens_ == 0) return false;
    if (kDims > work_.shape.head_dim) ClearBehindDims();
    for (int i = 0; i < kStages; ++i) StartTile(i);
    return true;
  }

  __device__ SplitQuery Query(int n) const {
    const int64_t row = row_ + n / heads_, num_tokens = work_.batch.rows[row].num_tokens;
    const bool is_partial = num_tokens > kSplit;
    const int64_t before = is_partial ? (row - work_.first_row) * work_.num_splits + split_ : row;
    return {before * work_.shape.num_heads + first_head_ + n % heads_,
            TokensInSplit(work_, row, split_), is_partial};
  }

  __device__ void WriteEmptyRows() {
    for (int n = warp_; n < num_queries_; n += kWarps) {
      const SplitQuery query = queries()[n];
      if (query.num_tokens > 0) continue;
      for (int d = lane_; d < work_.shape.head_dim; d += kWarpSize)
        StoreAs(0, work_.batch.out, work_.batch.out_dtype, query.head * work_.shape.head_dim + d);
      if (lane_ == 0) WriteLse(query, -INFINITY);
    }
  }

  // Queries that the block has room for and that do not exist are zero, and dims too.
  __device__ void LoadQueries() {
    switch (work_.batch.q_dtype) {
      case DType::kF32: return LoadQueries(static_cast<const float*>(work_.batch.q));
      case DType::kBF16: return LoadQueries(static_cast<const BF16*>(work_.batch.q));
      default: return LoadQueries(static_cast<const F16*>(work_.batch.q));
    }
  }
  template <typename Q>
  __device__ void LoadQueries(const Q* from) {
    constexpr int kOfWarp = (kQueries + kWarps - 1) / kWarps,
                  kOfLane = (kDims > 0 ? kDims : kMostDims) / kWarpSize;
    const int head_dim = work_.shape.head_dim;
    Q value[kOfWarp][kOfLane] = {};
    LAMINA_UNROLL
    for (int i = 0; i < kOfWarp; ++i) {
      const int n = warp_ + i * kWarps;
      const Q* const query =
          from +
          ((row_ + n / heads_) * work_.shape.num_heads + first_head_ + n % heads_) * head_dim;
      LAMINA_UNROLL
      for (int j = 0; j < kOfLane; ++j) {
        const int d = lane_ + j * kWarpSize;
        if (n < num_queries_ && d < head_dim) value[i][j] = query[d];
      }
    }
    LAMINA_UNROLL
    for (int i = 0; i < kOfWarp; ++i) {
      const int n = warp_ + i * kWarps;
      LAMINA_UNROLL
      for (int j = 0; j < kOfLane; ++j) {
        const int d = lane_ + j * kWarpSize;
        if (n < kQueries && d < layout_.dims()) q()[n * layout_.dims() + d] = Load(&value[i][j]);
      }
    }
  }

  // What this lane copies of a tile: kCopied elements from `element` on of `rows` rows from `row`
  // on. Of F8 that is twice as many elements as it computes with, so half as many lanes copy a row.
  struct Part {
    int rows, row, element;
    bool is_there;  // rows have these elements
  };
  __device__ Part PartOfTile() const {
    const int lanes = lanes_ * kVector / kCopied<T>, rows = kTile<T> / (kWarpSize / lanes),
              element = lane_ % lanes * kCopied<T>;
    return {rows, lane_ / lanes * rows, element, element < work_.shape.head_dim};
  }

  // Starts to copy tile number `tile`; one beyond the last has no rows. Rows of V behind the last
  // token are cleared where kDims is set: tensor cores multiply them too, by weights of 0, and 0
  // times NaN is NaN.
  __device__ void StartTile(int tile) {
    if constexpr (kScaled) StartScales(tile);
    const Part part = PartOfTile();
    if (tile < 2 * num_tiles_ && part.is_there) {
      const bool is_v = tile >= num_tiles_;
      const int first = FirstToken(tile) + part.row, left = num_tokens_ - first;
      const T* const elements = static_cast<const T*>(is_v ? work_.kv.v : work_.kv.k) +
                                kv_head_ * work_.kv.head_stride + part.element;
      const auto* const from = reinterpret_cast<const unsigned char*>(elements);
      const auto row_bytes = static_cast<uint32_t>(work_.kv.slot_stride * sizeof(T));
      T* const to = TileRow(tile, part.row) + part.element;
      const auto copy = [&](int i, uint32_t slot) {
        CopyVectorAsync(to + i * layout_.pitch(),
                        reinterpret_cast<const T*>(from + uint64_t{slot} * row_bytes));
      };
      if (left >= part.rows) {
        constexpr int kSlots = sizeof(SlotsOf<T>) / sizeof(TokenSlot);
        LAMINA_UNROLL
        for (int i = 0; i < part.rows; i += kSlots) {
          const auto slot = *reinterpret_cast<const SlotsOf<T>*>(slots() + first + i);
          LAMINA_UNROLL
          for (int j = 0; j < kSlots; ++j) copy(i + j, slot.word[j]);
        }
      } else {
        for (int i = 0; i < part.rows; ++i) {
          if (i < left) {
            copy(i, static_cast<uint32_t>(slots()[first + i]));
          } else if (kDims > 0 && is_v) {
            *reinterpret_cast<Words4*>(to + i * layout_.pitch()) = Words4{};
          }
        }
      }
    }
    CommitCopies();
  }

  // The same for the tile's scales: a lane for each token.
  __device__ void StartScales(int tile) {
    static_assert(kTile<T> == kWarpSize);
    if (tile >= 2 * num_tiles_) return;
    const bool is_v = tile >= num_tiles_;
    const int token = FirstToken(tile) + lane_;
    float& to = ScaleOf(tile, lane_);
    if (token < num_tokens_) {
      const float* const of_head =
          (is_v ? work_.kv.v_scales : work_.kv.k_scales) + kv_head_ * work_.kv.scale_head_stride;
      CopyAsync4(&to, of_head + int64_t{slots()[token]} * work_.kv.scale_slot_stride);
    } else if (is_v) {
      to = 0;
    }
  }

  // Clears what the rows of the warp's tiles have behind head_dim, for good.
  __device__ void ClearBehindDims() {
    const Part part = PartOfTile();
    if (part.is_there || part.element >= layout_.dims()) return;
    for (int i = 0; i < kStages * part.rows; ++i) {
      *reinterpret_cast<Words4*>(TileRow(i / part.rows, part.row + i % part.rows) + part.element) =
          Words4{};
    }
  }

  // Waits until the warp's next tile is there for all of its lanes.
  __device__ void AwaitTile() {
    WaitForCopies<kStages - 1>();
    __syncwarp();
  }

  // Called when this lane needs the tile no more: its place is for the tile kStages further on.
  __device__ void ReplaceTile(int tile) {
    __syncwarp();
    StartTile(tile + kStages);
  }

  // Adds up parts(), the first parts_of_warp of which are the first warp's and so on, divides by
  // the sum of weights times `scale`, and writes that and the log-sum-exps. One warp for each
  // query. REQUIRES: a barrier since parts(), maxima() and sums() were written.
  __device__ void WriteOutputs(int parts_of_warp, float scale) {
    const int head_dim = work_.shape.head_dim;
    for (int n = warp_; n < num_queries_; n += kWarps) {
      const SplitQuery query = queries()[n];
      if (query.num_tokens == 0) continue;
      float max = -INFINITY, sum = 0, factor[kWarps];
      LAMINA_UNROLL
      for (int w = 0; w < kWarps; ++w) max = fmaxf(max, maxima()[w * kQueries + n]);
      LAMINA_UNROLL
      for (int w = 0; w < kWarps; ++w) {
        factor[w] = Exp(maxima()[w * kQueries + n] - max);
        sum += sums()[w * kQueries + n] * factor[w];
      }
      const float divisor = sum * scale;
      for (int d = lane_ * 4; d < head_dim; d += kWarpSize * 4) {
        Floats4 out = {};
        const float* part = parts() + n * layout_.dims() + d;
        LAMINA_UNROLL
        for (int w = 0; w < kWarps; ++w) {
          for (int i = 0; i < parts_of_warp; ++i, part += kQueries * layout_.dims()) {
            const Floats4 more = *reinterpret_cast<const Floats4*>(part);
            LAMINA_UNROLL
            for (int j = 0; j < 4; ++j) out.value[j] = fmaf(more.value[j], factor[w], out.value[j]);
          }
        }
        LAMINA_UNROLL
        for (int j = 0; j < 4; ++j) out.value[j] /= divisor;
        const int64_t to = query.head * head_dim + d;
        if (query.is_partial) {
          *reinterpret_cast<Floats4*>(work_.partial_out + to) = out;
        } else {
          LAMINA_UNROLL
          for (int j = 0; j < 4; ++j)
            StoreAs(out.value[j], work_.batch.out, work_.batch.out_dtype, to + j);
        }
      }
      if (lane_ == 0) WriteLse(query, max + logf(sum));
    }
  }

  __device__ void WriteLse(const SplitQuery& query, float lse) {
    if (query.is_partial) {
      work_.partial_lse[query.head] = lse;
    } else if (work_.batch.lse != nullptr) {
      work_.batch.lse[query.head] = lse;
    }
  }

  const AttentionWork& work_;
  const Layout layout_;
  const int64_t row_;
  const int split_;
  const int kv_head_, first_head_, thread_, warp_, lane_;
  // lanes_ lanes share a row of K or V; a warp has num_groups_ such groups, this lane is in group_
  // and has the vector_-th eight elements.
  const int lanes_, num_groups_, group_, vector_;
  const bool has_vector_;  // rows have these elements
  int heads_, num_queries_;
  int num_tokens_;  // in this split, of the row that has most
  int num_tiles_;   // of this warp, for K and for V
  bool is_even_;    // all rows have as many tokens in this split
};

}  // namespace lamina::cuda
