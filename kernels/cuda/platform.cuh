// The language that kernels are written in: CUDA C++ for nvcc, or its emulation on the CPU for any
// C++ compiler. Only .cu and .cuh files include this.
//
// Rules for kernels: shared memory is dynamic only, no thread of a block returns before the block's
// last barrier, and blocks are multiples of a warp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/runtime.h"

#if LAMINA_CUDA_EMULATED
#include <atomic>
#include <chrono>
#include <thread>

#include "kernels/cuda/emulation/simt.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace lamina::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// How many blocks and threads a launch has, and how much shared memory each block.
struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
};

// The block's dynamic shared memory, aligned to 16 bytes at least.
__device__ inline unsigned char* SharedMemory() {
#if LAMINA_CUDA_EMULATED
  return reinterpret_cast<unsigned char*>(emulation::coordinates.shared);
#else
  extern __shared__ __align__(128) unsigned char lamina_shared_memory[];
  return lamina_shared_memory;
#endif
}

// Asynchronous copies from global to shared memory that pass no register (cp.async). Each thread
// waits for its own copies; a barrier then makes them visible to the other threads.
//
// Starts a copy of 16 bytes. REQUIRES: both ends are aligned to 16 bytes.
__device__ inline void CopyAsync16(void* shared, const void* global) {
#if LAMINA_CUDA_EMULATED
  emulation::StartCopy(shared, global, 16);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(shared))),
               "l"(global)
               : "memory");
#endif
}
// Starts a copy of 4 bytes. REQUIRES: both ends are aligned to 4 bytes.
__device__ inline void CopyAsync4(void* shared, const void* global) {
#if LAMINA_CUDA_EMULATED
  emulation::StartCopy(shared, global, 4);
#else
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(shared))),
               "l"(global)
               : "memory");
#endif
}
// Makes a group of the copies that this thread has started since the last commit.
__device__ inline void CommitCopies() {
#if LAMINA_CUDA_EMULATED
  emulation::CommitCopies();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until at most kGroups of this thread's groups, the latest ones, are in flight.
template <int kGroups>
__device__ inline void WaitForCopies() {
#if LAMINA_CUDA_EMULATED
  emulation::WaitForCopies(kGroups);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
#endif
}

// Loads and stores that order memory between devices, and between a device and the host.
// StoreRelease makes what this thread has seen or done visible to the whole system, then writes;
// a thread that reads that value by LoadAcquire sees it all.
__device__ inline uint64_t LoadAcquire(const uint64_t* p) {
#if LAMINA_CUDA_EMULATED
  return std::atomic_ref(*const_cast<uint64_t*>(p)).load(std::memory_order_acquire);
#else
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
  return value;
#endif
}
__device__ inline void StoreRelease(uint64_t value, uint64_t* p) {
#if LAMINA_CUDA_EMULATED
  std::atomic_ref(*p).store(value, std::memory_order_release);
#else
  __threadfence_system();
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
#endif
}

// Orders accesses by different addresses to the same memory. Memory may be mapped twice on a
// device, once for each of two nodes: what was written through one mapping is then read through the
// other.
__device__ inline void FenceAliases() {
#if !LAMINA_CUDA_EMULATED
  asm volatile("fence.proxy.alias;" ::: "memory");
#endif
}

// A clock, of which only differences mean something. Its resolution may be a microsecond.
__device__ inline uint64_t Nanoseconds() {
#if LAMINA_CUDA_EMULATED
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#else
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
#endif
}

// Leaves the multiprocessor to others for a moment.
__device__ inline void Pause() {
#if LAMINA_CUDA_EMULATED
  std::this_thread::sleep_for(std::chrono::microseconds(20));
#else
  __nanosleep(40);
#endif
}

// e^x, with a relative error of at most 2^-22 (1 + |x|), in three instructions; 0 for -infinity.
__device__ inline float Exp(float x) {
#if LAMINA_CUDA_EMULATED
  return expf(x);
#else
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.44269504f));
  return power;
#endif
}

// Load and store one element of a storage type: exact, and rounded to nearest even.
__device__ inline float Load(const float* p) { return *p; }
__device__ inline void Store(float x, float* p) { *p = x; }
#if LAMINA_CUDA_EMULATED
inline float Load(const BF16* p) { return ToFloat(*p); }
inline float Load(const F16* p) { return ToFloat(*p); }
inline void Store(float x, BF16* p) { *p = ToBF16(x); }
inline void Store(float x, F16* p) { *p = ToF16(x); }
#else
__device__ inline float Load(const BF16* p) {
  return __uint_as_float(static_cast<unsigned>(p->bits) << 16);
}
__device__ inline float Load(const F16* p) { return __half2float(__ushort_as_half(p->bits)); }
__device__ inline void Store(float x, BF16* p) {
  p->bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
__device__ inline void Store(float x, F16* p) { p->bits = __half_as_ushort(__float2half_rn(x)); }
#endif

// F8 by the conversions of base/dtype.h, so that every GPU and CPU stores the same bits. For many
// elements vectors.cuh is faster.
__device__ inline float Load(const F8* p) { return ToFloat(*p); }
__device__ inline void Store(float x, F8* p) { *p = ToF8(x); }

// Element i of an array of `dtype`, which is not kF8. The type is tested for each element, so these
// are for kernels in which that costs little.
__device__ inline float LoadAs(const void* array, DType dtype, int64_t i) {
  if (dtype == DType::kF32) return static_cast<const float*>(array)[i];
  return dtype == DType::kBF16 ? Load(static_cast<const BF16*>(array) + i)
                               : Load(static_cast<const F16*>(array) + i);
}
__device__ inline void StoreAs(float x, void* array, DType dtype, int64_t i) {
  if (dtype == DType::kF32) {
    static_cast<float*>(array)[i] = x;
  } else if (dtype == DType::kBF16) {
    Store(x, static_cast<BF16*>(array) + i);
  } else {
    Store(x, static_cast<F16*>(array) + i);
  }
}

// Element i of an array that may be K or V: kF8 too.
__device__ inline float LoadKvAs(const void* array, DType dtype, int64_t i) {
  return dtype == DType::kF8 ? Load(static_cast<const F8*>(array) + i) : LoadAs(array, dtype, i);
}
__device__ inline void StoreKvAs(float x, void* array, DType dtype, int64_t i) {
  if (dtype == DType::kF8) {
    Store(x, static_cast<F8*>(array) + i);
  } else {
    StoreAs(x, array, dtype, i);
  }
}

// Sum and maximum over the lanes of a warp, the same bits in every lane.
__device__ inline float WarpSum(float x) {
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(kAllLanes, x, lanes);
  return x;
}
__device__ inline float WarpMax(float x) {
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2)
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, lanes));
  return x;
}

// Gives `kernel` to the stream to run. A launch that the device refuses becomes the stream's
// failure.
template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...), const LaunchShape& shape, Stream& stream,
            Arguments... arguments) {
#if LAMINA_CUDA_EMULATED
  const std::string refused = emulation::RefusedLaunch(shape.grid, shape.block, shape.shared_bytes);
  if (!refused.empty())
    return stream.Fail(InternalError("a kernel could not be launched: " + refused));
  emulation::Enqueue(static_cast<cudaStream_t>(stream.handle()), [=] {
    return emulation::RunGrid(shape.grid, shape.block, shape.shared_bytes,
                              [&] { kernel(static_cast<Parameters>(arguments)...); });
  });
#else
  cudaError_t error = cudaSuccess;
  // A kernel gets more than 48 KiB of dynamic shared memory only if it is allowed that.
  if (shape.shared_bytes > 48 << 10) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shape.shared_bytes));
  }
  if (error == cudaSuccess) {
    cudaLaunchConfig_t config = {};
    config.gridDim = shape.grid;
    config.blockDim = shape.block;
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = static_cast<cudaStream_t>(stream.handle());
    error = cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
  }
  if (error == cudaSuccess) return;
  cudaGetLastError();
  stream.Fail(
      InternalError(std::string("a kernel could not be launched: ") + cudaGetErrorString(error)));
#endif
}

}  // namespace lamina::cuda
