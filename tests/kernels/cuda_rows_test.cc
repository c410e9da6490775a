#if LAMINA_HAS_CUDA
#include "kernels/cuda/rows.h"

#include <gtest/gtest.h>

#include <numeric>

#include "cuda_cases.h"
#include "kernel_cases.h"
#include "kernels/reference/reference.h"

namespace lamina::cuda {
namespace {

// The rows of a value, and where a set begins in each.
constexpr size_t kRows = 6, kStride = 200, kColumn = 13;

using CudaRows = CudaTest;

TEST_F(CudaRows, PackTakesTheRowsAndColumnsOfASet) {
  const std::vector<float> x = RandomFloats(kRows * kStride, 1, 3);
  const DeviceBuffer device_x = Upload(x);
  const std::vector<int32_t> index = {4, 0, 5};
  const DeviceBuffer device_index = Upload(index);
  for (const DType dtype : kKvDTypesWithoutScales) {
    for (const size_t width : {size_t{1}, size_t{100}, size_t{130}}) {
      for (const bool indexed : {false, true}) {
        std::vector<float> expected;
        for (size_t i = 0; i < index.size(); ++i) {
          const float* row = &x[(indexed ? static_cast<size_t>(index[i]) : i) * kStride + kColumn];
          expected.insert(expected.end(), row, row + width);
        }
        const RowSet rows = {3, static_cast<int64_t>(width), kStride,
                             indexed ? device_index.as<int32_t>() : nullptr};
        const std::vector<std::byte> got =
            OutputOf<std::byte>(expected.size() * ElementSize(dtype), [&](std::byte* y) {
              PackRows(device_x.as<float>() + kColumn, rows, dtype, y, stream());
            });
        EXPECT_EQ(got, Encode(expected, dtype));
      }
    }
  }
}

// What UnpackRows and its kin leave of a value, `change` being what they should do to each element
// of the set.
template <class F>
std::vector<float> Changed(const std::vector<float>& before, const std::vector<int32_t>& index,
                           size_t width, const F& change) {
  std::vector<float> after = before;
  for (size_t i = 0; i < index.size(); ++i) {
    for (size_t j = 0; j < width; ++j) {
      float& at = after[static_cast<size_t>(index[i]) * kStride + kColumn + j];
      at = change(at, i, i * width + j);
    }
  }
  return after;
}

TEST_F(CudaRows, UnpackChangesTheSetAndNothingElse) {
  constexpr size_t kWidth = 150;
  const std::vector<int32_t> index = {5, 1, 2};
  const std::vector<float> before = RandomFloats(kRows * kStride, 1),
                           factors = RandomFloats(index.size(), 2);
  const DeviceBuffer device_index = Upload(index), device_factors = Upload(factors);
  const RowSet rows = {3, kWidth, kStride, device_index.as<int32_t>()};
  const auto after = [&](const auto& kernel) {
    const DeviceBuffer y = Upload(before);
    kernel(y.as<float>() + kColumn);
    return Download<float>(y);
  };
  for (const DType dtype : kAllDTypes) {
    const std::vector<std::byte> message = Encode(RandomFloats(index.size() * kWidth, 3), dtype);
    const DeviceBuffer x = Upload(message);
    const auto at = [&](size_t i) {
      return reference::At(message.data(), dtype, static_cast<int64_t>(i));
    };
    EXPECT_TRUE(
        SameBits(after([&](float* y) { UnpackRows(x.data(), dtype, rows, y, stream()); }),
                 Changed(before, index, kWidth, [&](float, size_t, size_t i) { return at(i); })));
    if (dtype != DType::kF32) continue;
    EXPECT_TRUE(SameBits(after([&](float* y) {
                           AddScaledRows(x.as<float>(), device_factors.as<float>(), rows, y,
                                         stream());
                         }),
                         Changed(before, index, kWidth, [&](float old, size_t row, size_t i) {
                           return std::fma(factors[row], at(i), old);
                         })));
  }
}

TEST_F(CudaRows, KvGoesIntoItsSlotsAndNowhereElse) {
  constexpr int kHeads = 3, kHeadDim = 40, kSlots = 9;
  const std::vector<TokenSlot> slots = {7, 0, 3};
  const DeviceBuffer device_slots = Upload(slots);
  constexpr size_t kWidth = kHeads * kHeadDim;
  const std::vector<float> k = RandomFloats(slots.size() * kWidth, 1),
                           v = RandomFloats(slots.size() * kWidth, 2);
  for (const DType dtype : kKvDTypesWithoutScales) {
    for (const DType from : {DType::kF32, dtype}) {
      const DeviceBuffer device_k = Upload(Encode(k, from)), device_v = Upload(Encode(v, from));
      const size_t slab_bytes = kSlots * kWidth * ElementSize(dtype);
      const DeviceBuffer slab_k = Poisoned<std::byte>(slab_bytes),
                         slab_v = Poisoned<std::byte>(slab_bytes);
      const KvPlace place = {slab_k.data(), slab_v.data(), kSlots * kHeadDim, kHeadDim, dtype};
      WriteKv(device_k.data(), device_v.data(), from, device_slots.as<TokenSlot>(), 3, kHeads,
              kHeadDim, place, stream());
      const auto expect = [&](const std::vector<float>& rows, const DeviceBuffer& slab) {
        std::vector<std::byte> expected(slab_bytes, std::byte{0xff});
        const std::vector<std::byte> encoded = Encode(rows, dtype);
        const size_t head_bytes = kHeadDim * ElementSize(dtype);
        for (size_t i = 0; i < slots.size(); ++i) {
          for (size_t head = 0; head < kHeads; ++head) {
            std::memcpy(&expected[(head * kSlots + slots[i]) * head_bytes],
                        &encoded[(i * kHeads + head) * head_bytes], head_bytes);
          }
        }
        EXPECT_EQ(Download<std::byte>(slab), expected);
      };
      expect(k, slab_k);
      expect(v, slab_v);
    }
  }
}

TEST_F(CudaRows, NoRowsAreNothingDone) {
  PackRows(nullptr, {0, 8, 8}, DType::kBF16, nullptr, stream());
  UnpackRows(nullptr, DType::kBF16, {0, 8, 8}, nullptr, stream());
  AddScaledRows(nullptr, nullptr, {0, 8, 8}, nullptr, stream());
  WriteKv(nullptr, nullptr, DType::kF32, nullptr, 0, 1, 8, {}, stream());
  EXPECT_TRUE(stream().Synchronize().ok());
}

}  // namespace
}  // namespace lamina::cuda
#endif
