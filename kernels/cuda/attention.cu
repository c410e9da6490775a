#include "kernels/cuda/attention.h"

#include <math.h>

#include <algorithm>

#include "kernels/cuda/attention_fma.cuh"
#include "kernels/cuda/attention_tensor.cuh"
#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/reduce.cuh"

namespace lamina::cuda {
namespace {

constexpr int kMergeThreads = 256;

// The shared memory of MergeSplits: what BlockSum needs, the weights [num_splits], and the sums
// [num_groups, head_dim], where num_groups * head_dim <= 4 * kMergeThreads.
constexpr size_t kMergeSumBytes = kBlockSumBytes<kMergeThreads>;
size_t MergeBytes(int64_t num_splits) {
  return kMergeSumBytes + (static_cast<size_t>(num_splits) + 4 * kMergeThreads) * sizeof(float);
}

// Merges the partials of a row's splits, if it has several. One block for each row and query head.
// Each group of threads adds up every num_groups-th split, four elements per thread; then the
// groups' sums are added up.
__global__ void MergeSplits(const __grid_constant__ AttentionWork work) {
  const int64_t row = work.first_row + blockIdx.x, num_tokens = work.batch.rows[row].num_tokens;
  const int num_heads = work.shape.num_heads, head_dim = work.shape.head_dim,
            head = static_cast<int>(blockIdx.y);
  const int num_splits = static_cast<int>((num_tokens + kSplit - 1) / kSplit),
            thread = static_cast<int>(threadIdx.x);
  const int64_t output = row * num_heads + head,
                first_split = static_cast<int64_t>(blockIdx.x) * work.num_splits;
  if (num_splits <= 1) return;  // the split has written the output itself

  float* const weights = reinterpret_cast<float*>(SharedMemory() + kMergeSumBytes);  // [num_splits]
  const float* const lse = work.partial_lse + first_split * num_heads + head;
  const float* const out = work.partial_out + (first_split * num_heads + head) * head_dim;
  // `weights` first holds the log-sum-exps, then exp(lse - max).
  float max = -INFINITY, sum = 0;
  for (int s = thread; s < num_splits; s += kMergeThreads)
    max = fmaxf(max, weights[s] = lse[static_cast<int64_t>(s) * num_heads]);
  max = BlockMax<kMergeThreads>(max);
  for (int s = thread; s < num_splits; s += kMergeThreads)
    sum += weights[s] = expf(weights[s] - max);
  sum = BlockSum<kMergeThreads>(sum);  // its barriers also make the weights visible

  float* const of_groups = weights + num_splits;  // [num_groups, head_dim]
  const int lanes = head_dim / 4, num_groups = kMergeThreads / lanes, group = thread / lanes,
            lane = thread % lanes;
  if (group < num_groups) {
    float merged[4] = {};
    for (int s = group; s < num_splits; s += num_groups) {
      const Floats4 part = reinterpret_cast<const Floats4*>(out + static_cast<int64_t>(s) *
                                                                      num_heads * head_dim)[lane];
      LAMINA_UNROLL
      for (int j = 0; j < 4; ++j) merged[j] = fmaf(weights[s], part.value[j], merged[j]);
    }
    LAMINA_UNROLL
    for (int j = 0; j < 4; ++j) of_groups[group * head_dim + lane * 4 + j] = merged[j];
  }
  __syncthreads();
  for (int d = thread; d < head_dim; d += kMergeThreads) {
    float merged = 0;
    for (int g = 0; g < num_groups; ++g) merged += of_groups[g * head_dim + d];
    StoreAs(merged / sum, work.batch.out, work.batch.out_dtype, output * head_dim + d);
  }
  if (thread == 0 && work.batch.lse != nullptr) work.batch.lse[output] = max + logf(sum);
}

// Computes one split of the block's rows. Neighbours that begin at the same slot are taken
// together, and share reads of K and V, unless Split requires rows of the same length and they are
// not.
template <class Split>
__global__ void __launch_bounds__(kSplitThreads, Split::kBlocks)
    AttendSplits(const __grid_constant__ AttentionWork work) {
  const int split = static_cast<int>(blockIdx.x) % work.num_splits;
  const auto go_together = [&](int64_t a, int64_t b) {
    return work.batch.rows[a].first_slot == work.batch.rows[b].first_slot &&
           (!Split::kNeedsEvenRows ||
            TokensInSplit(work, a, split) == TokensInSplit(work, b, split));
  };
  const int64_t begin = work.first_row + int64_t{static_cast<int>(blockIdx.x) / work.num_splits} *
                                             work.rows_per_block;
  const int64_t end = work.first_row + work.num_rows;
  int64_t row = begin;
  while (row < end && row < begin + work.rows_per_block) {
    int num_rows = 1;
    while (row + num_rows < end && row + num_rows < begin + work.rows_per_block &&
           go_together(row, row + num_rows))
      ++num_rows;
    Split(work, row, num_rows, split).Run();
    row += num_rows;
    __syncthreads();  // the next rows use the same shared memory
  }
}

template <class Split>
void LaunchSplits(const AttentionWork& work, Stream& stream) {
  const int64_t row_tiles = (work.num_rows + work.rows_per_block - 1) / work.rows_per_block;
  const dim3 grid(static_cast<unsigned>(row_tiles * work.num_splits),
                  static_cast<unsigned>(work.shape.num_kv_heads * work.head_tiles));
  const typename Split::Layout layout = {work.shape.head_dim};
  Launch(AttendSplits<Split>,
         {grid, dim3(kSplitThreads), static_cast<size_t>(layout.total_bytes())}, stream, work);
}

// Kernels with room for more queries than there are would compute the missing ones for nothing.
template <typename T>
void LaunchFma(const AttentionWork& work, Stream& stream) {
  const int queries = work.rows_per_block * work.heads_per_block;
  if (queries == 1) return LaunchSplits<FmaSplit<T, 1>>(work, stream);
  if (queries == 2) return LaunchSplits<FmaSplit<T, 2>>(work, stream);
  if (queries <= 4) return LaunchSplits<FmaSplit<T, 4>>(work, stream);
  LaunchSplits<FmaSplit<T, kMaxQueries>>(work, stream);
}

// Only the shape decides, never the number of rows, because the two ways round differently and a
// row must not depend on the batch.
template <typename T, bool kScaled = false>
void LaunchNarrow(const AttentionWork& work, Stream& stream) {
  const int head_dim = work.shape.head_dim;
  if constexpr (sizeof(T) > 1) {
    if (head_dim % kStep != 0) return LaunchFma<T>(work, stream);
  }
  if (head_dim <= 64) return LaunchSplits<TensorSplit<T, 4, kScaled>>(work, stream);
  if (head_dim <= 128) return LaunchSplits<TensorSplit<T, 8, kScaled>>(work, stream);
  LaunchSplits<TensorSplit<T, 16, kScaled>>(work, stream);
}

void LaunchForType(const AttentionWork& work, Stream& stream) {
  switch (work.kv.dtype) {
    case DType::kF32: return LaunchFma<float>(work, stream);
    case DType::kBF16: return LaunchNarrow<BF16>(work, stream);
    case DType::kF16: return LaunchNarrow<F16>(work, stream);
    case DType::kF8: return LaunchNarrow<F8>(work, stream);
    case DType::kI8Scaled: return LaunchNarrow<int8_t, /*kScaled=*/true>(work, stream);
    case DType::kF8Scaled: return LaunchNarrow<F8, /*kScaled=*/true>(work, stream);
  }
}

int64_t SplitsOf(int64_t num_tokens) { return (num_tokens + kSplit - 1) / kSplit; }

// Partials of a row: none if it has one split, whose result is the row's.
int64_t PartialHeadsPerRow(const AttentionShape& shape, int64_t max_tokens) {
  return SplitsOf(max_tokens) > 1 ? SplitsOf(max_tokens) * shape.num_heads : 0;
}

}  // namespace

Status CheckAttention(const AttentionShape& shape, const KvView& kv) {
  if (shape.num_kv_heads < 1 || shape.num_heads < shape.num_kv_heads ||
      shape.num_heads % shape.num_kv_heads != 0) {
    return InvalidArgument("attention with " + std::to_string(shape.num_heads) + " heads over " +
                           std::to_string(shape.num_kv_heads) +
                           " kv heads: the second must divide the first");
  }
  if (shape.head_dim < 8 || shape.head_dim > 256 || shape.head_dim % 8 != 0) {
    return InvalidArgument("attention with head_dim " + std::to_string(shape.head_dim) +
                           ": CUDA kernels have multiples of 8 up to 256");
  }
  if (IsForKvOnly(kv.dtype) && shape.head_dim % 16 != 0) {
    return InvalidArgument("attention with head_dim " + std::to_string(shape.head_dim) +
                           " over K and V in " + std::string(DTypeName(kv.dtype)) +
                           ": CUDA kernels have multiples of 16 up to 256; K and V in bfloat16 or "
                           "float16 do");
  }
  const auto bytes = static_cast<int64_t>(ElementSize(kv.dtype));
  const uintptr_t all = reinterpret_cast<uintptr_t>(kv.k) | reinterpret_cast<uintptr_t>(kv.v) |
                        static_cast<uintptr_t>(kv.head_stride * bytes) |
                        static_cast<uintptr_t>(kv.slot_stride * bytes);
  if (all % 16 != 0) return InvalidArgument("K, V and their strides must be multiples of 16 bytes");
  return kv.slot_stride * bytes < int64_t{1} << 32
             ? OkStatus()
             : InvalidArgument("the slots of K and V must be less than 4 GiB apart");
}

size_t AttentionScratchBytes(const AttentionShape& shape, int64_t num_rows, int64_t max_tokens) {
  return static_cast<size_t>(num_rows * PartialHeadsPerRow(shape, max_tokens) *
                             (shape.head_dim + 1)) *
         sizeof(float);
}

void Attention(const AttentionShape& shape, const KvView& kv, const AttentionBatch& batch,
               const DeviceBuffer& scratch, Stream& stream) {
  AttentionWork work;
  work.shape = shape;
  work.kv = kv;
  work.batch = batch;
  work.num_splits = static_cast<int>(std::max<int64_t>(1, SplitsOf(batch.max_tokens)));
  work.heads_per_block = std::min(shape.group(), kMaxQueries);
  work.head_tiles = (shape.group() + work.heads_per_block - 1) / work.heads_per_block;
  work.rows_per_block = batch.rows_share_slots ? kMaxQueries / work.heads_per_block : 1;

  // A grid has at most 2^31 - 1 blocks in its first dimension.
  int64_t rows_per_launch = std::min<int64_t>(batch.num_rows, 0x7fffffff / work.num_splits);
  if (const size_t row_bytes = AttentionScratchBytes(shape, 1, batch.max_tokens); row_bytes > 0) {
    rows_per_launch =
        std::min(rows_per_launch, static_cast<int64_t>(scratch.size_bytes() / row_bytes));
    if (rows_per_launch < 1)
      return stream.Fail(InternalError("attention got less scratch memory than one row needs"));
    work.partial_out = scratch.as<float>();
    work.partial_lse = work.partial_out + rows_per_launch *
                                              PartialHeadsPerRow(shape, batch.max_tokens) *
                                              shape.head_dim;
  }
  for (; work.first_row < batch.num_rows; work.first_row += rows_per_launch) {
    work.num_rows = std::min(rows_per_launch, batch.num_rows - work.first_row);
    LaunchForType(work, stream);
    if (work.num_splits == 1) continue;
    const dim3 grid(static_cast<unsigned>(work.num_rows), static_cast<unsigned>(shape.num_heads));
    Launch(MergeSplits, {grid, dim3(kMergeThreads), MergeBytes(work.num_splits)}, stream, work);
  }
}

}  // namespace lamina::cuda
