// Sums and maxima over the threads of a block.
#pragma once

#include "kernels/cuda/platform.cuh"

namespace lamina::cuda {

// What a kernel that calls these needs of shared memory, from its beginning.
template <int kBlockThreads>
inline constexpr size_t kBlockSumBytes = kBlockThreads / kWarpSize * sizeof(float);

// The same bits in every thread, and in an order that depends on nothing else. All threads of the
// block call it; may be called again.
template <int kBlockThreads>
__device__ float BlockSum(float x) {
  static_assert(kBlockThreads % kWarpSize == 0);
  float* const of_warp = reinterpret_cast<float*>(SharedMemory());
  x = WarpSum(x);
  __syncthreads();  // of_warp may still be read for the sum before
  if (threadIdx.x % kWarpSize == 0) of_warp[threadIdx.x / kWarpSize] = x;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < kBlockThreads / kWarpSize; ++i) sum += of_warp[i];
  return sum;
}
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

}  // namespace lamina::cuda
