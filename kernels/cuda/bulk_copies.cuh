// Bulk asynchronous copies from global to shared memory: PTX's cp.async.bulk and mbarrier, of
// compute capability 9.0 and later. One thread copies a whole row, and any number of threads wait
// for it.
//
// An mbarrier is 8 bytes of shared memory that goes through phases, numbered from 0: one is over
// when as many threads have arrived as the barrier was made for and all bytes that they expect are
// there. Whoever waits says the parity of the phase's number, so a thread must not fall two phases
// behind.
//
// Copies see shared memory by another way than a thread's own loads and stores do (the "async
// proxy"). What a copy brings is there for every thread that has waited for its phase. In the other
// direction, between a thread's use of some bytes and a copy that overwrites them, the thread calls
// FenceBulkCopies, and then a barrier tells the thread that copies. (NVIDIA, "Parallel Thread
// Execution ISA", asynchronous operations and memory consistency model.)
#pragma once

#include "kernels/cuda/platform.cuh"
#if LAMINA_CUDA_EMULATED
#include "kernels/cuda/emulation/bulk_copies.h"
#endif

// Whether the GPU that is compiled for has them; to be defined as 0 for kernels without them, which
// says what they gain.
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

// One thread makes a barrier, for `num_arrivals` per phase; before anybody uses it, FenceBulkCopies
// and a barrier of the block.
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

// This thread arrives in the phase that is under way, in which it starts copies of so many bytes
// from here on.
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

// Both ends and num_bytes are multiples of 16 bytes.
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

// Until the phase of this parity is over: returns at once if it is the one before the phase that is
// under way.
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

// What this thread has read and written in shared memory so far comes before what copies write
// there.
__device__ inline void FenceBulkCopies() {
#if LAMINA_CUDA_EMULATED
  emulation::FenceBulkCopies();
#else
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#endif

}  // namespace lamina::cuda
