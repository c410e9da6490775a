#if LAMINA_HAS_CUDA
#include "kernels/cuda/rows.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <numeric>

#include "cuda_cases.h"
#include "kernel_cases.h"
#include "kernels/kv_rows.h"
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

// Vectors of head_dim elements that round in every way: [vectors, head_dim].
std::vector<float> OddVectors(size_t head_dim) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> all;
  const auto add = [&](const std::vector<float>& x) { all.insert(all.end(), x.begin(), x.end()); };
  for (const float magnitude : {1.0f, 1e-30f, 1e30f, 3e38f, 1e-38f, 1e-42f, 1e-44f, 4e-45f})
    add(RandomFloats(head_dim, std::bit_cast<uint32_t>(magnitude), magnitude));
  for (const float x : {0.0f, -0.0f, 1e-45f, -5e-44f, 0.7f, -3e38f})
    add(std::vector<float>(head_dim, x));
  for (const float odd : {NAN, -NAN, std::bit_cast<float>(0xff800001u), kInf, -kInf}) {
    for (const size_t at : {size_t{0}, head_dim / 2 + 1, head_dim - 1}) {
      add(RandomFloats(head_dim, 5));
      all[all.size() - head_dim + at] = odd;
    }
  }
  std::vector<float> halves(head_dim);  // with a scale of 1 for codes that are integers
  for (size_t i = 0; i < head_dim; ++i) halves[i] = static_cast<float>(i % 127) - 62.5f;
  halves[1] = 127;
  add(halves);
  halves[1] = kMaxF8;
  add(halves);
  return all;
}

TEST_F(CudaRows, RowsWithScalesAreThoseOfTheCpuBitForBit) {
  for (const int head_dim : {16, 24, 64, 80, 256}) {
    const auto width = static_cast<size_t>(head_dim);
    const std::vector<float> vectors = OddVectors(width);
    const size_t num_heads = vectors.size() / width;  // of two rows that differ in their order
    constexpr size_t kPad = 5;
    std::vector<float> x;
    for (int row = 0; row < 2; ++row) {
      x.insert(x.end(), kPad, 9e30f);  // columns of others
      for (size_t i = 0; i < num_heads; ++i) {
        const size_t head = row == 0 ? i : num_heads - 1 - i;
        x.insert(x.end(), &vectors[head * width], &vectors[head * width] + width);
      }
    }
    const int64_t stride = std::ssize(x) / 2;
    const DeviceBuffer device_x = Upload(x), index = Upload(std::vector<int32_t>{1, 0});
    for (const DType dtype : kKvDTypesWithScales) {
      SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + std::to_string(head_dim));
      const auto row_bytes =
          static_cast<size_t>(KvRowBytes(dtype, static_cast<int64_t>(num_heads), head_dim));
      std::vector<std::byte> expected(2 * row_bytes);
      for (size_t row = 0; row < 2; ++row) {
        PackKvRow(&x[(1 - row) * static_cast<size_t>(stride) + kPad],
                  static_cast<int64_t>(num_heads), head_dim, dtype, &expected[row * row_bytes]);
      }
      EXPECT_EQ(OutputOf<std::byte>(expected.size(),
                                    [&](std::byte* y) {
                                      PackKvRows(device_x.as<float>() + kPad,
                                                 {2, stride - static_cast<int64_t>(kPad), stride,
                                                  index.as<int32_t>()},
                                                 head_dim, dtype, y, stream());
                                    }),
                expected);
    }
  }
}

// From fp32 and from rows of messages, into slots whose scales lie in several ways.
TEST_F(CudaRows, KvWithScalesGoesIntoItsSlotsAndNowhereElse) {
  constexpr int kHeads = 3, kHeadDim = 40, kSlots = 9;
  constexpr size_t kWidth = kHeads * kHeadDim;
  const std::vector<TokenSlot> slots = {7, 0, 3};
  const DeviceBuffer device_slots = Upload(slots);
  std::vector<float> k = RandomFloats(slots.size() * kWidth, 1, 3),
                     v = RandomFloats(slots.size() * kWidth, 2);
  k[kWidth + kHeadDim + 7] = NAN;  // of slot 0, head 1
  v[kHeadDim] = -std::numeric_limits<float>::infinity();
  for (const DType dtype : kKvDTypesWithScales) {
    const auto encoded = [&](const std::vector<float>& rows) {
      std::vector<std::byte> bytes;
      for (size_t i = 0; i < slots.size(); ++i) {
        const auto row = rows.begin() + static_cast<std::ptrdiff_t>(i * kWidth);
        const std::vector<std::byte> of_row = EncodeRow({row, row + kWidth}, kHeads, dtype);
        bytes.insert(bytes.end(), of_row.begin(), of_row.end());
      }
      return bytes;
    };
    for (const DType from : {DType::kF32, dtype}) {
      for (const bool side_by_side : {false, true}) {
        const DeviceBuffer device_k = Upload(from == dtype ? encoded(k) : Encode(k, from)),
                           device_v = Upload(from == dtype ? encoded(v) : Encode(v, from));
        const DeviceBuffer slab_k = Poisoned<std::byte>(kSlots * kWidth),
                           slab_v = Poisoned<std::byte>(kSlots * kWidth),
                           scales = Poisoned<float>(2 * kHeads * kSlots);
        const int64_t pitch = side_by_side ? 2 : 1;
        const KvPlace place = {
            .k = slab_k.data(),
            .v = slab_v.data(),
            .head_stride = kSlots * kHeadDim,
            .slot_stride = kHeadDim,
            .dtype = dtype,
            .k_scales = scales.as<float>(),
            .v_scales = scales.as<float>() + (side_by_side ? 1 : kHeads * kSlots),
            .scale_head_stride = kSlots * pitch,
            .scale_slot_stride = pitch};
        WriteKv(device_k.data(), device_v.data(), from, device_slots.as<TokenSlot>(), 3, kHeads,
                kHeadDim, place, stream());
        std::vector<float> expected_scales(2 * kHeads * kSlots, std::bit_cast<float>(0xffffffffu));
        const auto expect = [&](const std::vector<float>& rows, const DeviceBuffer& slab,
                                size_t first_scale) {
          std::vector<std::byte> expected(kSlots * kWidth, std::byte{0xff});
          const std::vector<std::byte> bytes = encoded(rows);
          const size_t row_bytes = bytes.size() / slots.size();
          for (size_t i = 0; i < slots.size(); ++i) {
            for (size_t head = 0; head < kHeads; ++head) {
              const std::byte* const row = &bytes[i * row_bytes];
              std::memcpy(&expected[(head * kSlots + slots[i]) * kHeadDim], row + head * kHeadDim,
                          kHeadDim);
              std::memcpy(&expected_scales[first_scale +
                                           (head * kSlots + slots[i]) * static_cast<size_t>(pitch)],
                          row + kWidth + head * sizeof(float), sizeof(float));
            }
          }
          EXPECT_EQ(Download<std::byte>(slab), expected);
        };
        expect(k, slab_k, 0);
        expect(v, slab_v, side_by_side ? 1 : kHeads * kSlots);
        EXPECT_TRUE(SameBits(Download<float>(scales), expected_scales));
      }
    }
  }
}

TEST_F(CudaRows, NoRowsAreNothingDone) {
  PackRows(nullptr, {0, 8, 8}, DType::kBF16, nullptr, stream());
  PackKvRows(nullptr, {0, 8, 8}, 8, DType::kI8Scaled, nullptr, stream());
  UnpackRows(nullptr, DType::kBF16, {0, 8, 8}, nullptr, stream());
  AddScaledRows(nullptr, nullptr, {0, 8, 8}, nullptr, stream());
  WriteKv(nullptr, nullptr, DType::kF32, nullptr, 0, 1, 8, {}, stream());
  EXPECT_TRUE(stream().Synchronize().ok());
}

}  // namespace
}  // namespace lamina::cuda
#endif
