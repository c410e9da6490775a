#include "kernels/cuda/attention.h"

#include <math.h>

#include <algorithm>

#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/vectors.cuh"

namespace lamina::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kSplit = kAttentionSplitTokens;
constexpr int kTile = 32;                         // tokens whose K or V is copied together
constexpr int kLanesPerToken = kThreads / kTile;  // that copy a row, and add up a score
constexpr int kMaxHeads = 8;                      // of a block; larger groups take several, whose second reads come from L2

// Tiles of K and V that a block has in shared memory, all but one of them on their way. A multiprocessor of compute capability 8.6 has 99
// KiB.
template <typename T>
constexpr int kStages = sizeof(T) == 4 ? 2 : 4;

// What a launch works on: `num_rows` rows from `first_row` on, in blocks (num_splits x num_rows, kv_heads x head_tiles).
struct Work {
  AttentionShape shape;
  KvView kv;
  AttentionBatch batch;
  int64_t first_row;
  int64_t num_splits;  // of the longest row
  int head_tiles;      // blocks per GQA group
  float* partial_out;  // [num_rows, num_splits, num_heads, head_dim] normalised; of rows of more than one split
  float* partial_lse;  // [num_rows, num_splits, num_heads]
};

// Bytes from one token to the next in a tile: the eight tokens that a warp reads at a time lie in different banks, two by two.
template <typename T>
__host__ __device__ constexpr int TilePitch(int head_dim) {
  const int row_bytes = head_dim * static_cast<int>(sizeof(T));
  return row_bytes + (64 - row_bytes % 128 + 128) % 128;
}

// Shared memory of a block, in this order.
template <typename T, int kHeads>
struct Layout {
  int head_dim;

  __host__ __device__ int slots_bytes() const { return kSplit * static_cast<int>(sizeof(TokenSlot)); }
  __host__ __device__ int q_bytes() const { return kHeads * head_dim * 4; }     // [kHeads, head_dim]
  __host__ __device__ int scores_bytes() const { return kHeads * kSplit * 4; }  // [kHeads, kSplit], then their weights
  __host__ __device__ int sums_bytes() const { return kHeads * 2 * 4; }         // [kHeads] largest score, [kHeads] sum of weights
  __host__ __device__ int tiles_bytes() const { return kStages<T> * kTile * TilePitch<T>(head_dim); }
  // At the end the tiles' place takes [token groups, kHeads, head_dim] sums.
  __host__ __device__ int tail_bytes() const {
    const int sums = kThreads * kVector * kHeads * 4;
    return tiles_bytes() > sums ? tiles_bytes() : sums;
  }
  __host__ __device__ int sums_at() const { return slots_bytes() + q_bytes() + scores_bytes(); }
  __host__ __device__ int tail_at() const { return (sums_at() + sums_bytes() + 127) / 128 * 128; }
  __host__ __device__ int total_bytes() const { return tail_at() + tail_bytes(); }
};

__device__ float Capped(float score, float soft_cap) { return soft_cap > 0 ? soft_cap * tanhf(score / soft_cap) : score; }

// One block: the heads of a tile of one GQA group, over one split of one row. K first, all of it, then the softmax, then V: in a split of
// this size nothing has to be corrected afterwards.
template <typename T, int kHeads>
class Splitter {
 public:
  __device__ Splitter(const Work& work, int64_t row, int64_t split)
      : work_(work),
        layout_{work.shape.head_dim},
        row_(row),
        split_(split),
        kv_head_(static_cast<int>(blockIdx.y) / work.head_tiles),
        first_head_(kv_head_ * work.shape.group() + static_cast<int>(blockIdx.y) % work.head_tiles * kHeads),
        thread_(static_cast<int>(threadIdx.x)) {
    const int heads_left = (kv_head_ + 1) * work.shape.group() - first_head_;
    heads_ = heads_left < kHeads ? heads_left : kHeads;
    const RowTokens tokens = work.batch.rows[row];
    const int64_t left = tokens.num_tokens - split * kSplit;
    num_tokens_ = left < kSplit ? static_cast<int>(left) : kSplit;
    num_tiles_ = (num_tokens_ + kTile - 1) / kTile;
    row_slots_ = work.batch.slots + tokens.first_slot + split * kSplit;
    alone_ = tokens.num_tokens <= kSplit;
  }

  __device__ void Run() {
    for (int t = thread_; t < num_tokens_; t += kThreads) slots()[t] = row_slots_[t];
    LoadQueries();
    __syncthreads();

    for (int i = 0; i < kStages<T> - 1; ++i) StartTile(i);
    float out[kHeads][kVector] = {};
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
  __device__ float* sums() const { return maxima() + kHeads; }
  __device__ T* TileRow(int tile, int token) const {
    return reinterpret_cast<T*>(at(layout_.tail_at() + (tile % kStages<T> * kTile + token) * TilePitch<T>(work_.shape.head_dim)));
  }
  __device__ int num_vectors() const { return work_.shape.head_dim / kVector; }
  __device__ int tokens_of(int tile) const {
    const int left = num_tokens_ - tile % num_tiles_ * kTile;
    return left < kTile ? left : kTile;
  }

  __device__ void LoadQueries() {
    const int64_t from = (row_ * work_.shape.num_heads + first_head_) * work_.shape.head_dim;
    for (int i = thread_; i < kHeads * work_.shape.head_dim; i += kThreads) {
      q()[i] = i < heads_ * work_.shape.head_dim ? LoadAs(work_.batch.q, work_.batch.q_dtype, from + i) : 0.0f;
    }
  }

  // Tiles [0, num_tiles_) are K's, the next as many V's. Beyond them there is nothing to copy, but a group to wait for.
  __device__ void StartTile(int tile) {
    const int token = thread_ / kLanesPerToken;
    if (tile < 2 * num_tiles_ && token < tokens_of(tile)) {
      const T* const from = static_cast<const T*>(tile < num_tiles_ ? work_.kv.k : work_.kv.v) + kv_head_ * work_.kv.head_stride +
                            static_cast<int64_t>(slots()[tile % num_tiles_ * kTile + token]) * work_.kv.slot_stride;
      T* const to = TileRow(tile, token);
      for (int i = thread_ % kLanesPerToken; i < num_vectors(); i += kLanesPerToken) CopyVectorAsync(to + i * kVector, from + i * kVector);
    }
    CommitCopies();
  }

  __device__ void Score(int tile) {
    const int token = thread_ / kLanesPerToken, lane = thread_ % kLanesPerToken;
    float score[kHeads] = {};
    if (token < tokens_of(tile)) {
      const T* const k_row = TileRow(tile, token);
      for (int i = lane; i < num_vectors(); i += kLanesPerToken) {
        float k[kVector];
        LoadVector(k_row + i * kVector, k);
        LAMINA_UNROLL
        for (int h = 0; h < kHeads; ++h) {
          float query[kVector];
          LoadVector(q() + h * work_.shape.head_dim + i * kVector, query);
          LAMINA_UNROLL
          for (int j = 0; j < kVector; ++j) score[h] = fmaf(query[j], k[j], score[h]);
        }
      }
    }
    LAMINA_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      LAMINA_UNROLL
      for (int lanes = kLanesPerToken / 2; lanes > 0; lanes /= 2) score[h] += __shfl_xor_sync(kAllLanes, score[h], lanes);
      if (h % kLanesPerToken == lane && token < tokens_of(tile)) {
        scores()[h * kSplit + tile * kTile + token] = Capped(score[h] * work_.shape.scale, work_.shape.soft_cap);
      }
    }
  }

  // Scores become weights exp(score - largest score). A warp for each head.
  __device__ void Weigh() {
    const int lane = thread_ % kWarpSize;
    for (int h = thread_ / kWarpSize; h < heads_; h += kThreads / kWarpSize) {
      float* const of_head = scores() + h * kSplit;
      float max = -INFINITY, sum = 0;
      for (int t = lane; t < num_tokens_; t += kWarpSize) max = fmaxf(max, of_head[t]);
      max = WarpMax(max);
      for (int t = lane; t < num_tokens_; t += kWarpSize) sum += of_head[t] = expf(of_head[t] - max);
      sum = WarpSum(sum);
      if (lane == 0) {
        maxima()[h] = max;
        sums()[h] = sum;
      }
    }
    __syncthreads();
  }

  // A thread adds up eight elements of every head, over every num_groups-th token of the tile.
  __device__ int num_groups() const { return kThreads / num_vectors(); }
  __device__ void AddValues(int tile, float (&out)[kHeads][kVector]) {
    const int vector = thread_ % num_vectors(), group = thread_ / num_vectors(), first = tile % num_tiles_ * kTile;
    if (group >= num_groups()) return;
    for (int t = group; t < tokens_of(tile); t += num_groups()) {
      float v[kVector];
      LoadVector(TileRow(tile, t) + vector * kVector, v);
      LAMINA_UNROLL
      for (int h = 0; h < kHeads; ++h) {
        const float weight = h < heads_ ? scores()[h * kSplit + first + t] : 0.0f;
        LAMINA_UNROLL
        for (int j = 0; j < kVector; ++j) out[h][j] = fmaf(weight, v[j], out[h][j]);
      }
    }
  }

  // Adds up what the groups have, and writes it. REQUIRES: nobody reads a tile any more.
  __device__ void AddGroups(const float (&out)[kHeads][kVector]) {
    float* const all = reinterpret_cast<float*>(at(layout_.tail_at()));
    const int head_dim = work_.shape.head_dim, vector = thread_ % num_vectors(), group = thread_ / num_vectors();
    if (group < num_groups()) {
      LAMINA_UNROLL
      for (int h = 0; h < kHeads; ++h) {
        LAMINA_UNROLL
        for (int j = 0; j < kVector; ++j) all[(group * kHeads + h) * head_dim + vector * kVector + j] = out[h][j];
      }
    }
    __syncthreads();
    for (int i = thread_; i < heads_ * head_dim; i += kThreads) {
      float sum = 0;
      for (int g = 0; g < num_groups(); ++g) sum += all[g * kHeads * head_dim + i];
      Write(i / head_dim, i % head_dim, sum / sums()[i / head_dim]);
    }
    for (int h = thread_; h < heads_; h += kThreads) WriteLse(h, maxima()[h] + logf(sums()[h]));
  }

  __device__ int64_t PartialHead(int h) const {
    return ((row_ - work_.first_row) * work_.num_splits + split_) * work_.shape.num_heads + first_head_ + h;
  }
  __device__ int64_t OutputHead(int h) const { return row_ * work_.shape.num_heads + first_head_ + h; }

  __device__ void Write(int h, int d, float x) {
    if (alone_) {
      StoreAs(x, work_.batch.out, work_.batch.out_dtype, OutputHead(h) * work_.shape.head_dim + d);
    } else {
      work_.partial_out[PartialHead(h) * work_.shape.head_dim + d] = x;
    }
  }
  __device__ void WriteLse(int h, float lse) {
    if (!alone_) {
      work_.partial_lse[PartialHead(h)] = lse;
    } else if (work_.batch.lse != nullptr) {
      work_.batch.lse[OutputHead(h)] = lse;
    }
  }

  const Work& work_;
  const Layout<T, kHeads> layout_;
  const int64_t row_, split_;
  const int kv_head_, first_head_, thread_;
  int heads_, num_tokens_, num_tiles_;
  const TokenSlot* row_slots_;
  bool alone_;  // the row has no other split
};

template <typename T, int kHeads>
__global__ void AttendSplits(const __grid_constant__ Work work) {
  const int64_t row = work.first_row + blockIdx.x / work.num_splits, split = blockIdx.x % work.num_splits;
  if (split * kSplit >= work.batch.rows[row].num_tokens) return;
  Splitter<T, kHeads>(work, row, split).Run();
}

// A block for each row and head: merges the row's splits in their order. Rows of one are written already, those without tokens not yet.
__global__ void MergeSplits(const __grid_constant__ Work work) {
  const int64_t row = work.first_row + blockIdx.x, num_tokens = work.batch.rows[row].num_tokens;
  const int head = static_cast<int>(blockIdx.y), num_heads = work.shape.num_heads, head_dim = work.shape.head_dim;
  const int64_t num_splits = (num_tokens + kSplit - 1) / kSplit, output = row * num_heads + head;
  if (num_splits == 1) return;
  const float *lse = nullptr, *out = nullptr;  // of the row's first split
  if (num_splits > 0) {
    lse = work.partial_lse + blockIdx.x * work.num_splits * num_heads + head;
    out = work.partial_out + (blockIdx.x * work.num_splits * num_heads + head) * head_dim;
  }
  float max = -INFINITY, sum = 0;
  for (int64_t s = 0; s < num_splits; ++s) max = fmaxf(max, lse[s * num_heads]);
  for (int64_t s = 0; s < num_splits; ++s) sum += expf(lse[s * num_heads] - max);
  for (int d = static_cast<int>(threadIdx.x); d < head_dim; d += kThreads) {
    float merged = 0;
    for (int64_t s = 0; s < num_splits; ++s) merged = fmaf(expf(lse[s * num_heads] - max), out[s * num_heads * head_dim + d], merged);
    StoreAs(num_splits == 0 ? 0.0f : merged / sum, work.batch.out, work.batch.out_dtype, output * head_dim + d);
  }
  if (threadIdx.x == 0 && work.batch.lse != nullptr) work.batch.lse[output] = max + logf(sum);  // without splits: -inf
}

template <typename T, int kHeads>
void LaunchSplits(const Work& work, int64_t num_rows, Stream& stream) {
  const dim3 grid(static_cast<unsigned>(num_rows * work.num_splits), static_cast<unsigned>(work.shape.num_kv_heads * work.head_tiles));
  const Layout<T, kHeads> layout = {work.shape.head_dim};
  Launch(AttendSplits<T, kHeads>, {grid, dim3(kThreads), static_cast<size_t>(layout.total_bytes())}, stream, work);
}

template <typename T>
void LaunchForGroup(const Work& work, int64_t num_rows, Stream& stream) {
  const int group = work.shape.group();
  if (group == 1) return LaunchSplits<T, 1>(work, num_rows, stream);
  if (group == 2) return LaunchSplits<T, 2>(work, num_rows, stream);
  if (group <= 4) return LaunchSplits<T, 4>(work, num_rows, stream);
  LaunchSplits<T, kMaxHeads>(work, num_rows, stream);
}

void LaunchForType(const Work& work, int64_t num_rows, Stream& stream) {
  switch (work.kv.dtype) {
    case DType::kF32: return LaunchForGroup<float>(work, num_rows, stream);
    case DType::kBF16: return LaunchForGroup<BF16>(work, num_rows, stream);
    case DType::kF16: return LaunchForGroup<F16>(work, num_rows, stream);
  }
}

int64_t SplitsOf(int64_t num_tokens) { return (num_tokens + kSplit - 1) / kSplit; }

int64_t ScratchFloatsPerRow(const AttentionShape& shape, int64_t max_tokens) {
  const int64_t num_splits = SplitsOf(max_tokens);
  return num_splits > 1 ? num_splits * shape.num_heads * (shape.head_dim + 1) : 0;
}

// A block for each row and head.
__global__ void MergeRows(PartialRows partials, int head_dim) {
  const int64_t head = static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y;
  const float lse = partials.lse[head], more_lse = partials.more_lse[head], max = fmaxf(lse, more_lse);
  const float weight = expf(lse - max), more_weight = expf(more_lse - max), sum = weight + more_weight;
  __syncthreads();  // lse is overwritten below
  if (more_lse == -INFINITY) return;
  for (int64_t i = head * head_dim + threadIdx.x; i < (head + 1) * head_dim; i += kThreads) {
    const float more = LoadAs(partials.more, partials.more_dtype, i);
    const float out = lse == -INFINITY ? 0.0f : LoadAs(partials.out, partials.out_dtype, i);
    StoreAs((weight * out + more_weight * more) / sum, partials.out, partials.out_dtype, i);
  }
  if (threadIdx.x == 0) partials.lse[head] = max + logf(sum);
}

}  // namespace

Status CheckAttention(const AttentionShape& shape, const KvView& kv) {
  if (shape.num_kv_heads < 1 || shape.num_heads < shape.num_kv_heads || shape.num_heads % shape.num_kv_heads != 0) {
    return InvalidArgument("attention with " + std::to_string(shape.num_heads) + " heads over " + std::to_string(shape.num_kv_heads) +
                           " kv heads: the second must divide the first");
  }
  if (shape.head_dim < 8 || shape.head_dim > 256 || shape.head_dim % 8 != 0) {
    return InvalidArgument("attention with head_dim " + std::to_string(shape.head_dim) + ": CUDA kernels have multiples of 8 up to 256");
  }
  const auto bytes = static_cast<int64_t>(ElementSize(kv.dtype));
  if ((reinterpret_cast<uintptr_t>(kv.k) | reinterpret_cast<uintptr_t>(kv.v) | static_cast<uintptr_t>(kv.head_stride * bytes) |
       static_cast<uintptr_t>(kv.slot_stride * bytes)) %
          16 !=
      0) {
    return InvalidArgument("K, V and their strides must be multiples of 16 bytes");
  }
  return OkStatus();
}

size_t AttentionScratchBytes(const AttentionShape& shape, int64_t num_rows, int64_t max_tokens) {
  return static_cast<size_t>(num_rows * ScratchFloatsPerRow(shape, max_tokens)) * sizeof(float);
}

void Attention(const AttentionShape& shape, const KvView& kv, const AttentionBatch& batch, const DeviceBuffer& scratch, Stream& stream) {
  if (batch.num_rows == 0) return;
  Work work = {shape,
               kv,
               batch,
               0,
               std::max<int64_t>(1, SplitsOf(batch.max_tokens)),
               (shape.group() + kMaxHeads - 1) / kMaxHeads,
               scratch.as<float>(),
               nullptr};
  const int64_t per_row = ScratchFloatsPerRow(shape, batch.max_tokens);
  int64_t rows_per_launch = std::min<int64_t>(batch.num_rows, 0x7fffffff / work.num_splits);
  if (per_row > 0) rows_per_launch = std::min(rows_per_launch, static_cast<int64_t>(scratch.size_bytes() / sizeof(float)) / per_row);
  if (rows_per_launch < 1) return stream.Fail(InternalError("attention got less scratch memory than one row needs"));
  if (per_row > 0) work.partial_lse = work.partial_out + rows_per_launch * (per_row / (shape.head_dim + 1)) * shape.head_dim;
  for (; work.first_row < batch.num_rows; work.first_row += rows_per_launch) {
    const int64_t num_rows = std::min(rows_per_launch, batch.num_rows - work.first_row);
    LaunchForType(work, num_rows, stream);
    const dim3 grid(static_cast<unsigned>(num_rows), static_cast<unsigned>(shape.num_heads));
    Launch(MergeSplits, {grid, dim3(kThreads), 0}, stream, work);
  }
}

void MergePartials(const PartialRows& partials, int64_t num_rows, int num_heads, int head_dim, Stream& stream) {
  if (num_rows == 0) return;
  const dim3 grid(static_cast<unsigned>(num_rows), static_cast<unsigned>(num_heads));
  Launch(MergeRows, {grid, dim3(kThreads), 0}, stream, partials, head_dim);
}

}  // namespace lamina::cuda
