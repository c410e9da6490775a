// Sums and maxima over the threads of a block. They depend on the threads' values only, so results
// are batch-invariant where a block works on one row.
#pragma once

#include <math.h>

#include "kernels/cuda/platform.cuh"

namespace lamina::cuda {

// The shared memory that a kernel needs to call these, from the beginning of the block's memory on.
template <int kBlockThreads>
inline constexpr size_t kBlockSumBytes = kBlockThreads / kWarpSize * sizeof(float);

// The sum of all threads' x, with the same bits in every thread, added up in a fixed order. All
// threads of the block call it together. May be called repeatedly.
template <int kBlockThreads>
__device__ float BlockSum(float x) {
  static_assert(kBlockThreads % kWarpSize == 0);
  float* const of_warp = reinterpret_cast<float*>(SharedMemory());
  x = WarpSum(x);
  __syncthreads();  // some threads may still read of_warp for the call before
  if (threadIdx.x % kWarpSize == 0) of_warp[threadIdx.x / kWarpSize] = x;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < kBlockThreads / kWarpSize; ++i) sum += of_warp[i];
  return sum;
}
// The largest of all threads' x, in the same way.
template <int kBlockThreads>
__device__ float BlockMax(float x) {
  static_assert(kBlockThreads % kWarpSize == 0);
  float* const of_warp = reinterpret_cast<float*>(SharedMemory());
  x = WarpMax(x);
  __syncthreads();
  if (threadIdx.x % kWarpSize == 0) of_warp[threadIdx.x / kWarpSize] = x;
  __syncthreads();
  for (int i = 0; i < kBlockThreads / kWarpSize; ++i) x = fmaxf(x, of_warp[i]);
  return x;
}

// The largest |x| of a row, in every thread; NaN does not count. x: [n].
template <int kBlockThreads>
__device__ float LargestOf(const float* x, int64_t n) {
  float largest = 0;
  for (int64_t i = threadIdx.x; i < n; i += kBlockThreads) largest = fmaxf(largest, fabsf(x[i]));
  return BlockMax<kBlockThreads>(largest);
}

}  // namespace lamina::cuda
