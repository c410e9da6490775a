#include <math.h>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/platform.cuh"

namespace lamina::cuda {
namespace {

constexpr int kThreads = 128;

// Merges one row and query head per block. FlashInfer (Ye et al. 2025) has the formula.
__global__ void MergeRows(PartialRows partials, int head_dim) {
  const int64_t head = static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y;
  const float lse = partials.lse[head], more_lse = partials.more_lse[head],
              max = fmaxf(lse, more_lse);
  const float weight = expf(lse - max), more_weight = expf(more_lse - max),
              sum = weight + more_weight;
  __syncthreads();                    // all threads have read lse before one of them overwrites it
  if (more_lse == -INFINITY) return;  // nothing to merge; also both -inf, where sum is NaN
  for (int64_t i = head * head_dim + threadIdx.x; i < (head + 1) * head_dim; i += kThreads) {
    const float more = LoadAs(partials.more, partials.more_dtype, i);
    // The output of no tokens may be anything, and 0 * NaN is NaN.
    const float out = lse == -INFINITY ? 0.0f : LoadAs(partials.out, partials.out_dtype, i);
    StoreAs((weight * out + more_weight * more) / sum, partials.out, partials.out_dtype, i);
  }
  if (threadIdx.x == 0) partials.lse[head] = max + logf(sum);
}

// One row and query head per block. exp(sink - lse) may be infinite: nothing is left of the row.
__global__ void AddSinkToRows(float* out, const float* lse, const float* sinks, int head_dim) {
  const int64_t head = static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y;
  const float share = 1.0f / (1.0f + expf(sinks[blockIdx.y] - lse[head]));
  for (int64_t i = head * head_dim + threadIdx.x; i < (head + 1) * head_dim; i += kThreads)
    out[i] *= share;
}

}  // namespace

void AddSinks(float* out, const float* lse, const float* sinks, int64_t num_rows, int num_heads,
              int head_dim, Stream& stream) {
  if (num_rows == 0) return;
  const dim3 grid(static_cast<unsigned>(num_rows), static_cast<unsigned>(num_heads));
  Launch(AddSinkToRows, {grid, dim3(kThreads), 0}, stream, out, lse, sinks, head_dim);
}

void MergePartials(const PartialRows& partials, int64_t num_rows, int num_heads, int head_dim,
                   Stream& stream) {
  if (num_rows == 0) return;
  const dim3 grid(static_cast<unsigned>(num_rows), static_cast<unsigned>(num_heads));
  Launch(MergeRows, {grid, dim3(kThreads), 0}, stream, partials, head_dim);
}

}  // namespace lamina::cuda
