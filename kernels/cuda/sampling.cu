#include "kernels/cuda/sampling.h"

#include <math.h>

#include "kernels/cuda/platform.cuh"

namespace lamina::cuda {
namespace {

constexpr int kThreads = 512;

constexpr uint64_t kNoneIsFinite = 0;
constexpr uint64_t kNotANumber = ~uint64_t{0};  // or +inf

__device__ uint32_t BitsOf(float x) {
#if LAMINA_CUDA_EMULATED
  return std::bit_cast<uint32_t>(x);
#else
  return __float_as_uint(x);
#endif
}

// Greater for greater logits, and of equal ones for the first: bits that sort as floats do, above the id turned around.
__device__ uint64_t KeyOf(float logit, int64_t id) {
  if (isnan(logit) || logit == INFINITY) return kNotANumber;
  if (logit == -INFINITY) return kNoneIsFinite;
  const uint32_t bits = BitsOf(logit + 0.0f);  // -0 becomes 0
  const uint32_t sorted = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(sorted) << 32 | static_cast<uint32_t>(~static_cast<uint32_t>(id));
}

// A block for each row.
__global__ void ArgMaxRows(const float* logits, int64_t vocab, TokenId* tokens) {
  uint64_t* const of_warp = reinterpret_cast<uint64_t*>(SharedMemory());  // [kThreads / kWarpSize]
  logits += static_cast<int64_t>(blockIdx.x) * vocab;
  uint64_t best = kNoneIsFinite;
  for (int64_t i = threadIdx.x; i < vocab; i += kThreads) {
    const uint64_t key = KeyOf(logits[i], i);
    best = key > best ? key : best;
  }
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    const uint64_t other = __shfl_xor_sync(kAllLanes, best, lanes);
    best = other > best ? other : best;
  }
  if (threadIdx.x % kWarpSize == 0) of_warp[threadIdx.x / kWarpSize] = best;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kThreads / kWarpSize; ++i) best = of_warp[i] > best ? of_warp[i] : best;
  tokens[blockIdx.x] = best == kNoneIsFinite || best == kNotANumber ? -1 : static_cast<TokenId>(~static_cast<uint32_t>(best));
}

}  // namespace

void ArgMax(const float* logits, int64_t rows, int64_t vocab, TokenId* tokens, Stream& stream) {
  if (rows == 0) return;
  Launch(ArgMaxRows, {dim3(static_cast<unsigned>(rows)), dim3(kThreads), kThreads / kWarpSize * sizeof(uint64_t)}, stream, logits, vocab,
         tokens);
}

}  // namespace lamina::cuda
