#if LAMINA_HAS_CUDA
#include "kernels/cuda/sampling.h"

#include <gtest/gtest.h>

#include "cuda_cases.h"
#include "kernel_cases.h"
#include "kernels/sampling.h"

namespace lamina::cuda {
namespace {

class CudaArgMax : public CudaTest {
 protected:
  std::vector<TokenId> ArgMaxOf(const std::vector<std::vector<float>>& rows) {
    std::vector<float> logits;
    for (const std::vector<float>& row : rows) logits.insert(logits.end(), row.begin(), row.end());
    const DeviceBuffer device_logits = Upload(logits);
    return OutputOf<TokenId>(
        rows.size(), [&](TokenId* tokens) { ArgMax(device_logits.as<float>(), std::ssize(rows), std::ssize(rows[0]), tokens, stream()); });
  }

  // As lamina::Sample does it on the host.
  static TokenId Greedy(std::vector<float> logits) {
    SamplingParams params;
    params.temperature = 0;
    return Sample(logits, params, {}).token;
  }
};

TEST_F(CudaArgMax, IsWhatTheHostChooses) {
  for (const size_t vocab : {1, 2, 31, 33, 511, 512, 513, 5000}) {
    std::vector<std::vector<float>> rows;
    std::vector<TokenId> expected;
    for (uint32_t seed = 0; seed < 5; ++seed) {
      rows.push_back(RandomFloats(vocab, seed, 30));
      if (seed == 3) {
        for (float& logit : rows.back()) logit = std::round(logit / 10);  // many equal ones, -0 among them
      }
      if (seed == 4) {
        for (float& logit : rows.back()) logit -= 100;
      }
      expected.push_back(Greedy(rows.back()));
    }
    EXPECT_EQ(ArgMaxOf(rows), expected) << vocab;
  }
}

TEST_F(CudaArgMax, TiesGoToTheLowestId) {
  std::vector<float> row(3000, -1.0f);
  for (const size_t i : {700, 1111, 1112, 2999}) row[i] = 5;
  std::vector<float> zeros(3000, -1.0f);
  zeros[40] = -0.0f;
  zeros[41] = 0.0f;
  EXPECT_EQ(ArgMaxOf({row, zeros, std::vector<float>(3000, -7.0f)}), (std::vector<TokenId>{700, 40, 0}));
}

TEST_F(CudaArgMax, OfWhatCannotBeSampledIsMinusOne) {
  const std::vector<float> good = RandomFloats(600, 1);
  std::vector<float> with_nan = good, with_infinity = good, with_minus_infinity = good;
  with_nan[599] = -NAN;
  with_infinity[3] = INFINITY;
  for (size_t i = 0; i < 599; ++i) with_minus_infinity[i] = -INFINITY;
  EXPECT_EQ(ArgMaxOf({with_nan, with_infinity, std::vector<float>(600, -INFINITY), with_minus_infinity}),
            (std::vector<TokenId>{-1, -1, -1, 599}));
  EXPECT_EQ(Greedy(with_nan), -1);
}

}  // namespace
}  // namespace lamina::cuda
#endif
