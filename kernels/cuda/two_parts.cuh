// Splits fp32 into two values of 16 bits, x = high + low + a rest, so that tensor cores can
// multiply it. With bf16 the rest is at most 2^-17 of x. fp16 has few exponents, so values are
// first scaled to the upper end of its range; the rest is then at most 2^-22 of the largest
// element.
#pragma once

#include <math.h>

#include <type_traits>

#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/vectors.cuh"

namespace lamina::cuda {

// The exponent of the power of two that brings `largest` to [2^14, 2^15), where fp16 has room above
// and all of its bits far below. 0 if `largest` is 0, infinite or NaN. A tiny `largest` is scaled
// less, so that the power of two itself is a float.
__device__ inline int ExponentFor(float largest) {
  if (!(largest > 0) || isinf(largest)) return 0;
  const int exponent = ilogbf(largest);
  return 14 - (exponent > -100 ? exponent : -100);
}

// 2^exponent. REQUIRES: exponent is in [-126, 127].
__device__ inline float PowerOfTwo(int exponent) {
  return AsFloat(static_cast<uint32_t>(exponent + 127) << 23);
}

// Rounds two values to T and puts them side by side, the first one in the lower half. FirstOf and
// SecondOf take them apart again.
template <typename T>
__device__ inline uint32_t PairOf(float first, float second) {
#if LAMINA_CUDA_EMULATED
  T pair[2];
  Store(first, &pair[0]);
  Store(second, &pair[1]);
  return pair[0].bits | static_cast<uint32_t>(pair[1].bits) << 16;
#else
  if constexpr (std::is_same_v<T, BF16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(first, second);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
#endif
}
template <typename T>
__device__ inline float FirstOf(uint32_t pair) {
  const T value = {static_cast<uint16_t>(pair)};
  return Load(&value);
}
template <typename T>
__device__ inline float SecondOf(uint32_t pair) {
  const T value = {static_cast<uint16_t>(pair >> 16)};
  return Load(&value);
}

// Two values, each split into two parts of T.
struct TwoParts {
  uint32_t high, low;  // pairs of T
};
template <typename T>
__device__ inline TwoParts Split(float first, float second) {
  const uint32_t high = PairOf<T>(first, second);
  return {high, PairOf<T>(first - FirstOf<T>(high), second - SecondOf<T>(high))};
}

}  // namespace lamina::cuda
