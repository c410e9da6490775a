#include "kernels/kv_store.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

namespace lamina {
namespace {

constexpr KvShape kShape{.num_layers = 2, .num_kv_heads = 1, .head_dim = 8, .dtype = DType::kF32};
constexpr SequenceId kA{1}, kB{2};
constexpr StepId kStep{1};

std::array<float, 8> Filled(float x) {
  std::array<float, 8> values;
  values.fill(x);
  return values;
}

class KvStoreTest : public ::testing::Test {
 protected:
  Status Write(int layer, SequenceId sequence, int64_t position, float value, StepId step = kStep) {
    const auto k = Filled(value), v = Filled(-value);
    return store_->Write(layer, sequence, position, k.data(), v.data(), step);
  }

  std::unique_ptr<KvStore> store_ = *KvStore::Create(kShape, 10);
};

TEST_F(KvStoreTest, TokensGoWhereTheTableSays) {
  const std::array<TokenSlot, 3> slots = {7, 2, 9};
  ASSERT_TRUE(store_->Append(kA, 0, slots, kStep).ok());
  for (int64_t i = 0; i < 3; ++i) ASSERT_TRUE(Write(1, kA, i, static_cast<float>(i + 1)).ok());
  const Result<std::span<const TokenSlot>> readable = store_->Readable(1, kA, 3);
  ASSERT_TRUE(readable.ok());
  const KvView view = store_->View(1);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*readable)[i], slots[i]);
    EXPECT_EQ(static_cast<const float*>(view.k)[slots[i] * view.slot_stride],
              static_cast<float>(i + 1));
    EXPECT_EQ(static_cast<const float*>(view.v)[slots[i] * view.slot_stride],
              -static_cast<float>(i + 1));
  }
}

TEST_F(KvStoreTest, WhatIsCutIsAppendedAndWrittenOnceMore) {
  const std::array<TokenSlot, 3> slots = {7, 2, 9};
  ASSERT_TRUE(store_->Append(kA, 0, slots, kStep).ok());
  for (int64_t i = 0; i < 3; ++i) ASSERT_TRUE(Write(0, kA, i, 1).ok());
  for (int64_t i = 0; i < 2; ++i) ASSERT_TRUE(Write(1, kA, i, 1).ok());  // layers are not even
  store_->Truncate(kA, 2);
  EXPECT_EQ(store_->used_tokens(), 2);
  EXPECT_EQ(store_->Readable(0, kA, 3).status().code(), StatusCode::kCorrupt);
  ASSERT_TRUE(store_->Append(kA, 2, std::array<TokenSlot, 1>{9}, StepId{2}).ok());
  for (const int layer : {0, 1}) {
    ASSERT_TRUE(Write(layer, kA, 2, 5, StepId{2}).ok());
    EXPECT_EQ(store_->Readable(layer, kA, 3)->back(), 9u);
  }
  for (const int64_t nothing : {3, 4, -1}) store_->Truncate(kA, nothing);
  store_->Truncate(kB, 0);
  EXPECT_EQ(store_->used_tokens(), 3);
  EXPECT_EQ(store_->num_sequences(), 1);
}

TEST_F(KvStoreTest, RefusesAnOrderThatDoesNotContinueTheTable) {
  const std::array<TokenSlot, 2> slots = {0, 1};
  ASSERT_TRUE(store_->Append(kA, 0, slots, kStep).ok());
  EXPECT_EQ(store_->Append(kA, 1, slots, kStep).code(), StatusCode::kCorrupt);
  EXPECT_EQ(store_->Append(kA, 3, slots, kStep).code(), StatusCode::kCorrupt);
  EXPECT_EQ(store_->Append(kB, 1, slots, kStep).code(), StatusCode::kCorrupt);
  const std::array<TokenSlot, 1> outside = {10};
  EXPECT_EQ(store_->Append(kA, 2, outside, kStep).code(), StatusCode::kCorrupt);
  EXPECT_EQ(store_->used_tokens(), 2);
  EXPECT_EQ(store_->num_sequences(), 1);
}

TEST_F(KvStoreTest, RefusesToReadWhatWasNotWritten) {
  const std::array<TokenSlot, 2> slots = {0, 1};
  ASSERT_TRUE(store_->Append(kA, 0, slots, kStep).ok());
  ASSERT_TRUE(Write(0, kA, 0, 1).ok());
  EXPECT_TRUE(store_->Readable(0, kA, 1).ok());
  EXPECT_EQ(store_->Readable(0, kA, 2).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(store_->Readable(1, kA, 1).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(store_->Readable(0, kB, 1).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_->Readable(2, kA, 0).status().code(), StatusCode::kCorrupt);
}

TEST_F(KvStoreTest, RefusesRepeatedAndSkippedWrites) {
  const std::array<TokenSlot, 3> slots = {0, 1, 2};
  ASSERT_TRUE(store_->Append(kA, 0, slots, kStep).ok());
  ASSERT_TRUE(Write(0, kA, 0, 1).ok());
  EXPECT_EQ(Write(0, kA, 0, 1).code(), StatusCode::kCorrupt);
  EXPECT_EQ(Write(0, kA, 2, 1).code(), StatusCode::kCorrupt);
  EXPECT_TRUE(Write(0, kA, 1, 1).ok());
}

TEST_F(KvStoreTest, MadeUpTokensAreThereInAllLayersAndDiffer) {
  const std::array<TokenSlot, 4> slots = {7, 2, 9, 0};
  ASSERT_TRUE(store_->AppendDummy(kA, 0, std::span(slots).first(3), kStep).ok());
  EXPECT_EQ(store_->AppendDummy(kA, 1, std::span(slots).last(1), kStep).code(),
            StatusCode::kCorrupt);
  std::set<std::vector<float>> rows;
  for (const int layer : {0, 1}) {
    ASSERT_TRUE(store_->Readable(layer, kA, 3).ok());
    const KvView view = store_->View(layer);
    for (const TokenSlot slot : std::span(slots).first(3)) {
      for (const void* part : {view.k, view.v}) {
        const float* const row = static_cast<const float*>(part) + slot * view.slot_stride;
        rows.emplace(row, row + 8);
        for (int i = 0; i < 8; ++i) EXPECT_TRUE(std::abs(row[i]) <= 1 && row[i] != 0);
      }
    }
  }
  EXPECT_EQ(rows.size(), 12u);
  ASSERT_TRUE(store_->Append(kA, 3, std::span(slots).last(1), kStep).ok());
  EXPECT_FALSE(store_->Readable(0, kA, 4).ok()) << "that one was not made up";
  EXPECT_TRUE(Write(0, kA, 3, 1).ok());
}

TEST_F(KvStoreTest, SharedTokensAreThereInAllLayers) {
  const std::vector<TokenSlot> slots = {1, 0, 2};
  ASSERT_TRUE(store_->Share(kA, std::span(slots).first(2), kStep).ok());
  for (int layer = 0; layer < store_->shape().num_layers; ++layer) {
    const Result<std::span<const TokenSlot>> readable = store_->Readable(layer, kA, 2);
    ASSERT_TRUE(readable.ok()) << readable.status();
    EXPECT_EQ((*readable)[0], 1u);
  }
  ASSERT_TRUE(store_->Append(kA, 2, std::span(slots).last(1), kStep).ok());
  EXPECT_EQ(store_->Readable(0, kA, 3).status().code(), StatusCode::kCorrupt)
      << "its own token is not written yet";
  EXPECT_EQ(store_->Share(kA, slots, kStep).code(), StatusCode::kCorrupt) << "it has a table";
}

TEST_F(KvStoreTest, ALateMessageForARecomputedSequenceIsDropped) {
  const std::array<TokenSlot, 1> slots = {0};
  ASSERT_TRUE(store_->Append(kA, 0, slots, StepId{1}).ok());
  store_->Release(kA);
  ASSERT_TRUE(store_->Append(kA, 0, slots, StepId{5}).ok());
  EXPECT_EQ(Write(0, kA, 0, 1, StepId{1}).code(), StatusCode::kNotFound);
  EXPECT_TRUE(Write(0, kA, 0, 1, StepId{5}).ok());
}

TEST_F(KvStoreTest, SaysWhatIsWrittenInEveryLayer) {
  const std::array<TokenSlot, 3> slots = {7, 2, 9};
  ASSERT_TRUE(store_->Append(kA, 0, slots, kStep).ok());
  EXPECT_EQ(store_->sequences(), std::vector<SequenceId>{kA});
  for (int64_t i = 0; i < 3; ++i) ASSERT_TRUE(Write(0, kA, i, 1).ok());
  EXPECT_EQ(store_->NumWritten(kA), 0);
  for (int64_t i = 0; i < 2; ++i) ASSERT_TRUE(Write(1, kA, i, 1).ok());
  EXPECT_EQ(store_->NumWritten(kA), 2);
  store_->Truncate(kA, 1);
  EXPECT_EQ(store_->NumWritten(kA), 1);
  EXPECT_EQ(store_->NumWritten(kB), 0);
}

TEST_F(KvStoreTest, ReleaseReturnsTheCountsToZero) {
  const std::array<TokenSlot, 3> slots = {0, 1, 2};
  ASSERT_TRUE(store_->Append(kA, 0, slots, kStep).ok());
  const std::array<TokenSlot, 1> other = {3};
  ASSERT_TRUE(store_->Append(kB, 0, other, kStep).ok());
  EXPECT_EQ(store_->used_tokens(), 4);
  store_->Release(kA);
  store_->Release(kA);
  store_->Release(kB);
  EXPECT_EQ(store_->used_tokens(), 0);
  EXPECT_EQ(store_->num_sequences(), 0);
}

}  // namespace
}  // namespace lamina
