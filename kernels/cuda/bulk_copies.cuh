// Bulk asynchronous copies from global to shared memory: PTX's cp.async.bulk and mbarrier, which
// GPUs of compute capability 9.0 and later have. One thread starts the copy of a whole row, and any
// number of threads wait for it.
//
// An mbarrier is 8 bytes of shared memory that goes through phases, numbered from 0. A phase is
// over when as many threads have arrived as the barrier was initialised for, and all bytes that
// they expect are there. A thread that waits names the parity of the phase's number, so no thread
// may fall two phases behind.
//
// Copies access shared memory through another proxy than a thread's own loads and stores do (the
// "async proxy"). What a copy brings is visible to every thread that has waited for its phase. In
// the other direction, before a copy overwrites bytes that a thread has used, that thread must call
// FenceBulkCopies, and then reach a barrier together with the thread that starts the copy. (NVIDIA,
// "Parallel Thread Execution ISA", asynchronous operations and memory consistency model.)
#pragma once

#include "kernels/cuda/platform.cuh"
#if LAMINA_CUDA_EMULATED
#include "kernels/cuda/emulation/bulk_copies.h"
#endif

// Whether the GPU that is compiled for has bulk copies. A build may define it as 0, to measure what
// bulk copies gain.
#ifndef LAMINA_HAS_BULK_COPIES
#if LAMINA_CUDA_EMULATED || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900)
#define LAMINA_HAS_BULK_COPIES 1
#else
#define LAMINA_HAS_BULK_COPIES 0
#endif
#endif

namespace lamina::cuda {

using Mbarrier = uint64_t;

#if LAMINA_HAS_BULK_COPIES

// Initialises a barrier for `num_arrivals` per phase. One thread calls it; before anyone uses the
// barrier, that thread calls FenceBulkCopies and the block a __syncthreads.
__device__ inline void InitMbarrier(Mbarrier* barrier, int num_arrivals) {
#if LAMINA_CUDA_EMULATED
  emulation::InitMbarrier(barrier, num_arrivals);
#else
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(barrier))),
               "r"(num_arrivals)
               : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// Arrives in the current phase, and expects copies of so many more bytes in it, which are to be
// started after this call.
__device__ inline void ArriveExpecting(Mbarrier* barrier, int num_bytes) {
#if LAMINA_CUDA_EMULATED
  emulation::ArriveExpecting(barrier, num_bytes);
#else
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(barrier))),
               "r"(num_bytes)
               : "memory");
#endif
}

// Starts a copy that counts for the current phase of `barrier`. REQUIRES: both ends are aligned to
// 16 bytes, num_bytes is a multiple of 16.
__device__ inline void CopyBulkAsync(void* shared, const void* global, int num_bytes,
                                     Mbarrier* barrier) {
#if LAMINA_CUDA_EMULATED
  emulation::StartBulkCopy(shared, global, num_bytes, barrier);
#else
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))),
      "l"(global), "r"(num_bytes), "r"(static_cast<unsigned>(__cvta_generic_to_shared(barrier)))
      : "memory");
#endif
}

// Waits until the phase of this parity is over. Returns at once if that is the phase before the
// current one.
__device__ inline void WaitForPhase(Mbarrier* barrier, unsigned parity) {
#if LAMINA_CUDA_EMULATED
  emulation::WaitForPhase(barrier, parity);
#else
  unsigned is_over = 0;
  while (is_over == 0) {
    asm volatile(
        "{\n"
        ".reg .pred over;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
        "selp.u32 %0, 1, 0, over;\n"
        "}"
        : "=r"(is_over)
        : "r"(static_cast<unsigned>(__cvta_generic_to_shared(barrier))), "r"(parity)
        : "memory");
  }
#endif
}

// Orders what this thread has read and written in shared memory so far before the writes of copies
// that are started after the next barrier.
__device__ inline void FenceBulkCopies() {
#if LAMINA_CUDA_EMULATED
  emulation::FenceBulkCopies();
#else
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#endif

}  // namespace lamina::cuda
