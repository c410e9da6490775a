// The emulation's tensor cores against plain loops, with matrices divided among the lanes as
// tensor_cores.cuh says. On GPUs the attention that uses them is held against the reference.
#if LAMINA_CUDA_EMULATED
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cuda/emulation/simt.h"
#include "kernels/cuda/emulation/tensor_cores.h"

namespace lamina::cuda::emulation {
namespace {

uint16_t BitsOf(float x, BF16 /*type*/) { return ToBF16(x).bits; }
uint16_t BitsOf(float x, F16 /*type*/) { return ToF16(x).bits; }

// Whole numbers: sums are exact in any order.
template <typename T>
std::vector<uint16_t> RandomNumbers(size_t n, std::mt19937& random, std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (size_t i = 0; i < n; ++i) {
    values.push_back(static_cast<float>(static_cast<int>(random() % 17) - 8));
    bits.push_back(BitsOf(values.back(), T{}));
  }
  return bits;
}

uint32_t PairOf(uint16_t low, uint16_t high) { return low | static_cast<uint32_t>(high) << 16; }

template <typename T>
void ExpectProducts(uint64_t order) {
  std::mt19937 random(7);
  std::vector<float> a, b;
  const std::vector<uint16_t> a_bits = RandomNumbers<T>(16 * 16, random, a),
                              b_bits = RandomNumbers<T>(16 * 8, random, b);
  std::vector<float> d(16 * 8, 0.5f), expected = d;
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      for (size_t k = 0; k < 16; ++k) expected[i * 8 + j] += a[i * 16 + k] * b[k * 8 + j];
    }
  }
  SetOrder(order);
  EXPECT_EQ(RunGrid(dim3(1), dim3(64), 0,
                    [&] {
                      const size_t g = Lane() / 4, c = Lane() % 4 * 2;
                      const auto pair_of_a = [&](size_t row, size_t column) {
                        return PairOf(a_bits[row * 16 + column], a_bits[row * 16 + column + 1]);
                      };
                      const auto pair_of_b = [&](size_t row, size_t column) {
                        return PairOf(b_bits[row * 8 + column], b_bits[(row + 1) * 8 + column]);
                      };
                      const uint32_t mine_of_a[4] = {pair_of_a(g, c), pair_of_a(g + 8, c),
                                                     pair_of_a(g, c + 8), pair_of_a(g + 8, c + 8)};
                      const uint32_t mine_of_b[2] = {pair_of_b(c, g), pair_of_b(c + 8, g)};
                      float mine[4] = {0.5f, 0.5f, 0.5f, 0.5f};
                      MultiplyAdd<T>(mine_of_a, mine_of_b, mine);
                      // Both warps have the same; the second one writes.
                      if (threadIdx.x < 32) return;
                      d[g * 8 + c] = mine[0];
                      d[g * 8 + c + 1] = mine[1];
                      d[(g + 8) * 8 + c] = mine[2];
                      d[(g + 8) * 8 + c + 1] = mine[3];
                    }),
            "");
  SetOrder(0);
  EXPECT_EQ(d, expected);
}

TEST(EmulatedTensorCores, MultiplyMatricesThatTheLanesShare) {
  for (const uint64_t order : {0, 1, 2}) {
    ExpectProducts<BF16>(order);
    ExpectProducts<F16>(order);
  }
}

TEST(EmulatedTensorCores, LoadMatricesAsTheyAreAndTransposed) {
  alignas(16) std::array<uint16_t, 4 * 8 * 8> elements;  // [matrix, row, column]
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<uint16_t>(i);
  for (const bool transposed : {false, true}) {
    std::vector<std::array<uint32_t, 4>> loaded(32);
    EXPECT_EQ(RunGrid(dim3(1), dim3(32), 0,
                      [&] {
                        uint32_t mine[4];
                        LoadMatrices(elements.data() + Lane() * 8, transposed, mine);
                        std::memcpy(loaded[Lane()].data(), mine, sizeof(mine));
                      }),
              "");
    for (size_t lane = 0; lane < 32; ++lane) {
      const size_t g = lane / 4, c = lane % 4 * 2;
      for (size_t m = 0; m < 4; ++m) {
        const uint16_t* const matrix = elements.data() + m * 64;
        EXPECT_EQ(loaded[lane][m], transposed ? PairOf(matrix[c * 8 + g], matrix[(c + 1) * 8 + g])
                                              : PairOf(matrix[g * 8 + c], matrix[g * 8 + c + 1]));
      }
    }
  }
}

TEST(EmulatedTensorCores, AWarpThatLacksALaneIsFound) {
  const std::string failure = RunGrid(dim3(1), dim3(32), 0, [] {
    const uint32_t a[4] = {}, b[2] = {};
    float d[4] = {};
    if (threadIdx.x != 5) MultiplyAdd<BF16>(a, b, d);
  });
  EXPECT_NE(failure, "");
}

}  // namespace
}  // namespace lamina::cuda::emulation
#endif
