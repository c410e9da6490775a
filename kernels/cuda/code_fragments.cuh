// Codes of quantized weights as operands of tensor cores: the words of quantized_weights.h become
// pairs of fp16, exactly.
#pragma once

#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/two_parts.cuh"
#include "kernels/cuda/vectors.cuh"
#include "kernels/weight_format.h"

namespace lamina::cuda {

// The same operation on both halves of a register.
__device__ inline uint32_t SubtractHalves(uint32_t a, uint32_t b) {
#if LAMINA_CUDA_EMULATED
  return PairOf<F16>(FirstOf<F16>(a) - FirstOf<F16>(b), SecondOf<F16>(a) - SecondOf<F16>(b));
#else
  const __half2 difference = __hsub2(AsHalves(a), AsHalves(b));
  return *reinterpret_cast<const uint32_t*>(&difference);
#endif
}
__device__ inline uint32_t MultiplyHalves(uint32_t a, uint32_t b) {
#if LAMINA_CUDA_EMULATED
  return PairOf<F16>(FirstOf<F16>(a) * FirstOf<F16>(b), SecondOf<F16>(a) * SecondOf<F16>(b));
#else
  const __half2 product = __hmul2(AsHalves(a), AsHalves(b));
  return *reinterpret_cast<const uint32_t*>(&product);
#endif
}

// The number that has code 0 of whole numbers, as they come out of `Numbers` below before it is
// subtracted. `zero` is a zero point, and 8 where codes of 4 bits are around 0.
template <WeightCode kCode>
__device__ inline uint32_t ZeroOf(int zero) {
  const float number = static_cast<float>((kCode == WeightCode::kInt8 ? 1024 + 128 : 1024) + zero);
  return PairOf<F16>(number, number);
}

// Register j of step `s` of a lane's 16 bytes. zero: what ZeroOf gives for the register's output.
template <WeightCode kCode>
__device__ inline uint32_t NumbersOf(const Words4& words, int s, int j, uint32_t zero) {
  if constexpr (kCode == WeightCode::kInt4) {
    // In an F16 whose exponent is that of 1024 the lowest bit is 1.
    return SubtractHalves((words.word[s] >> 4 * j & 0x000f000fu) | 0x64006400u, zero);
  } else if constexpr (kCode == WeightCode::kF4) {
    // Moved into an F16's place, the bits mean the value times 2^-14, 0.5 too; 0x7400 is 2^14.
    const uint32_t codes = words.word[s] >> 4 * j;
    return MultiplyHalves((codes & 0x00080008u) << 12 | (codes & 0x00070007u) << 9, 0x74007400u);
  } else {
    const uint32_t word = words.word[2 * s + j / 2];
    if constexpr (kCode == WeightCode::kF8)
      return j % 2 == 0 ? HalvesOf(word) : UpperHalvesOf(word);
#if LAMINA_CUDA_EMULATED
    const uint32_t codes = word >> j % 2 * 16;
    return SubtractHalves((codes & 0xffu) | (codes & 0xff00u) << 8 | 0x64006400u, zero);
#else
    return SubtractHalves(__byte_perm(word, 0x64646464u, j % 2 == 0 ? 0x4140 : 0x4342), zero);
#endif
  }
}

}  // namespace lamina::cuda
