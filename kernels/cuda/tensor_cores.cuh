// Multiplication of small matrices by a whole warp: PTX's mma.sync.m16n8k16 and ldmatrix, which
// GPUs of compute capability 8.0 and later have. All lanes of a warp call each function together.
//
// Matrices are divided among the lanes. With major = lane / 4 and minor = lane % 4 * 2, a lane
// holds these elements (row, column), where `+1` means the neighbour in the same row (of b:
// column):
//
//   a [16, 16], 16 bits   register 0: (major, minor) +1
//                         register 1: (major + 8, minor) +1
//                         register 2: (major, minor + 8) +1
//                         register 3: (major + 8, minor + 8) +1
//   b [16, 8], 16 bits    register 0: (minor, major) +1
//                         register 1: (minor + 8, major) +1
//   d [16, 8], fp32       (major, minor), (major, minor + 1), (major + 8, minor),
//                         (major + 8, minor + 1)
//
// The first element of a pair is in the register's lower half. (NVIDIA, "Parallel Thread Execution
// ISA", warp-level matrix instructions.)
#pragma once

#include <type_traits>

#include "kernels/cuda/platform.cuh"
#if LAMINA_CUDA_EMULATED
#include "kernels/cuda/emulation/tensor_cores.h"
#endif

namespace lamina::cuda {

// d += a b, the elements of a and b being of T, BF16 or F16.
template <typename T>
__device__ inline void MultiplyAdd(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&d)[4]) {
  static_assert(sizeof(T) == 2);
#if LAMINA_CUDA_EMULATED
  emulation::MultiplyAdd<T>(a, b, d);
#else
  if constexpr (std::is_same_v<T, BF16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#endif
}

// Loads four matrices of [8, 8] elements of 16 bits from shared memory. `row` of lane i points to
// row i % 8 of matrix i / 8 and is aligned to 16 bytes. The lane gets elements (major, minor) and
// (major, minor + 1) of each matrix.
__device__ inline void LoadMatrices(const void* row, uint32_t (&matrix)[4]) {
#if LAMINA_CUDA_EMULATED
  emulation::LoadMatrices(row, /*transposed=*/false, matrix);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrix[0]), "=r"(matrix[1]), "=r"(matrix[2]), "=r"(matrix[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
               : "memory");
#endif
}

// Loads four matrices in the same way, transposed: the lane gets (minor, major) and (minor + 1,
// major) of each.
__device__ inline void LoadTransposed(const void* row, uint32_t (&matrix)[4]) {
#if LAMINA_CUDA_EMULATED
  emulation::LoadMatrices(row, /*transposed=*/true, matrix);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrix[0]), "=r"(matrix[1]), "=r"(matrix[2]), "=r"(matrix[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
               : "memory");
#endif
}

}  // namespace lamina::cuda
