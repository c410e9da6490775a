#include "kernels/token_slab.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "kernel_cases.h"
#include "kernels/reference/reference.h"

namespace lamina {
namespace {

// The numbers that are stored. base: view.k or view.v.
std::vector<float> ReadRow(const KvView& view, const void* base, int kv_head, TokenSlot slot,
                           int head_dim) {
  std::vector<float> row;
  const int64_t at = kv_head * view.head_stride + int64_t{slot} * view.slot_stride;
  const float* const scales = base == view.k ? view.k_scales : view.v_scales;
  const float scale =
      scales == nullptr
          ? 1.0f
          : scales[kv_head * view.scale_head_stride + int64_t{slot} * view.scale_slot_stride];
  for (int d = 0; d < head_dim; ++d) row.push_back(reference::At(base, view.dtype, at + d) * scale);
  return row;
}

// The numbers of a row of KvRowBytes.
std::vector<float> Decode(const std::vector<std::byte>& row, const KvShape& shape) {
  std::vector<float> values;
  const int64_t width = shape.num_kv_heads * shape.head_dim;
  for (int64_t i = 0; i < width; ++i) {
    float scale = 1;
    if (HasScales(shape.dtype)) {
      const int64_t head = i / shape.head_dim;
      std::memcpy(&scale, &row[static_cast<size_t>(width + head * 4)], sizeof(scale));
    }
    values.push_back(reference::At(row.data(), shape.dtype, i) * scale);
  }
  return values;
}

// Layers that have a place one at a time, as KvRing has them.
class OneAtATime final : public LayerMemory {
 public:
  OneAtATime(const KvShape& shape, int64_t pitch)
      : pitch_(pitch),
        layers_(static_cast<size_t>(shape.num_layers),
                std::vector<std::byte>(
                    static_cast<size_t>(shape.bytes_per_token() / shape.num_layers * pitch))),
        place_(layers_[0].size()) {}

  std::byte* Use(int layer, bool /*writes*/) override {
    if (used_ >= 0) layers_[static_cast<size_t>(used_)] = place_;
    used_ = layer;
    std::copy_n(layers_[static_cast<size_t>(layer)].begin(), place_.size(), place_.begin());
    return place_.data();
  }
  int64_t pitch_tokens() const override { return pitch_; }

 private:
  const int64_t pitch_;
  std::vector<std::vector<std::byte>> layers_;
  std::vector<std::byte> place_;
  int used_ = -1;
};

// Fills every slot of every layer with its own values and reads all of it back.
void ExpectHoldsItsContents(const KvShape& shape, int64_t capacity, bool raw, bool one_at_a_time) {
  auto slab =
      one_at_a_time
          ? TokenSlab::CreateIn(std::make_unique<OneAtATime>(shape, capacity), shape).value()
          : TokenSlab::Create(shape, capacity).value();
  const auto width = static_cast<size_t>(shape.num_kv_heads * shape.head_dim);
  const auto values = [&](int layer, TokenSlot slot, uint32_t k_or_v) {
    return RandomFloats(width, static_cast<uint32_t>(layer) * 1000 + slot * 2 + k_or_v);
  };
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    for (TokenSlot slot = 0; slot < capacity; ++slot) {
      const std::vector<float> k = values(layer, slot, 0), v = values(layer, slot, 1);
      if (raw) {
        slab->WriteRaw(layer, slot, EncodeRow(k, shape.num_kv_heads, shape.dtype).data(),
                       EncodeRow(v, shape.num_kv_heads, shape.dtype).data());
      } else {
        slab->Write(layer, slot, k.data(), v.data());
      }
    }
  }
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    const KvView view = slab->View(layer);
    for (TokenSlot slot = 0; slot < capacity; ++slot) {
      const auto of = [&](uint32_t k_or_v) {
        return Decode(EncodeRow(values(layer, slot, k_or_v), shape.num_kv_heads, shape.dtype),
                      shape);
      };
      const std::vector<float> k = of(0), v = of(1);
      for (int h = 0; h < shape.num_kv_heads; ++h) {
        const std::vector<float> got_k = ReadRow(view, view.k, h, slot, shape.head_dim),
                                 got_v = ReadRow(view, view.v, h, slot, shape.head_dim);
        for (int d = 0; d < shape.head_dim; ++d) {
          const auto i = static_cast<size_t>(d),
                     of_row = static_cast<size_t>(h * shape.head_dim + d);
          ASSERT_EQ(got_k[i], k[of_row]);
          ASSERT_EQ(got_v[i], v[of_row]);
        }
      }
    }
  }
}

TEST(TokenSlab, HoldsWhatWasWritten) {
  for (DType dtype : kKvDTypes) {
    for (bool raw : {false, true}) {
      for (bool one_at_a_time : {false, true})
        ExpectHoldsItsContents({3, 2, 24, dtype}, 17, raw, one_at_a_time);
    }
  }
}

TEST(TokenSlab, CountsBytesPerToken) {
  const KvShape shape = {22, 4, 64, DType::kBF16};
  EXPECT_EQ(shape.bytes_per_token(), 22528);
  EXPECT_EQ(KvShape({22, 4, 64, DType::kF8}).bytes_per_token(), 11264);
  for (const DType dtype : {DType::kI8Scaled, DType::kF8Scaled})
    EXPECT_EQ(KvShape({22, 4, 64, dtype}).bytes_per_token(), 22 * 2 * 4 * (64 + 4));
  EXPECT_EQ(TokenSlab::Create(shape, 100).value()->capacity_tokens(), 100);
}

TEST(TokenSlab, WhatExceedsF8Saturates) {
  auto slab = TokenSlab::Create({1, 1, 8, DType::kF8}, 2).value();
  const std::vector<float> k = {447, 448, 449, 1e9f, INFINITY, -1e9f, 1e-9f, -0.75f}, v(8, -500.0f);
  slab->Write(0, 1, k.data(), v.data());
  const KvView view = slab->View(0);
  EXPECT_EQ(ReadRow(view, view.k, 0, 1, 8),
            (std::vector<float>{448, 448, 448, 448, 448, -448, 0, -0.75f}));
  EXPECT_EQ(ReadRow(view, view.v, 0, 1, 8), std::vector<float>(8, -448.0f));
}

TEST(TokenSlab, DummiesAreWithinOneAndDiffer) {
  for (DType dtype : kKvDTypes) {
    auto slab = TokenSlab::Create({1, 1, 64, dtype}, 2).value();
    slab->FillDummy(std::vector<TokenSlot>{0, 1});
    const KvView view = slab->View(0);
    const std::vector<float> first = ReadRow(view, view.k, 0, 0, 64),
                             second = ReadRow(view, view.k, 0, 1, 64);
    for (const float x : first) EXPECT_LE(std::abs(x), 1);
    EXPECT_NE(first, second);
    EXPECT_NE(first, std::vector<float>(64, first[0]));
  }
}

TEST(TokenSlab, MemoryStartsZeroed) {
  auto slab = TokenSlab::Create({1, 2, 16, DType::kF32}, 5).value();
  const KvView view = slab->View(0);
  for (float x : ReadRow(view, view.v, 1, 4, 16)) EXPECT_EQ(x, 0);
}

TEST(TokenSlab, RefusesShapesItCannotHold) {
  const KvShape good = {1, 1, 64, DType::kBF16};
  KvShape bad = good;
  bad.head_dim = 12;
  EXPECT_EQ(TokenSlab::Create(bad, 10).status().code(), StatusCode::kInvalidArgument);
  bad.head_dim = 264;
  EXPECT_EQ(TokenSlab::Create(bad, 10).status().code(), StatusCode::kInvalidArgument);
  bad = good;
  bad.num_layers = 0;
  EXPECT_EQ(TokenSlab::Create(bad, 10).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(TokenSlab::Create(good, 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(TokenSlab::Create(good, int64_t{1} << 33).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(TokenSlab, SaysHowMuchWasAskedForWhenMemoryIsRefused) {
  // More than an address space.
  const auto slab = TokenSlab::Create({1000, 128, 256, DType::kF32}, 4000000000);
  ASSERT_EQ(slab.status().code(), StatusCode::kOutOfSpace);
  EXPECT_NE(slab.status().message().find("4000000000 tokens of 262144000 bytes of KV need "
                                         "1048576000.0 GB of this host's memory, which has "),
            std::string::npos)
      << slab.status();
}

}  // namespace
}  // namespace lamina
