#include "kernels/modelled_kv_cache.h"

#include <gtest/gtest.h>

#include <vector>

namespace lamina {
namespace modelled_kv_cache_test {

constexpr SequenceId kSequence{7};
constexpr StepId kStep{3};

TEST(ModelledKvCache, TablesAreKeptAndCounted) {
  ModelledKvCache cache(100);
  const std::vector<TokenSlot> slots = {4, 5, 99};
  ASSERT_TRUE(cache.Append(kSequence, 0, slots, kStep).ok());
  EXPECT_EQ(cache.used_tokens(), 3);
  EXPECT_EQ(cache.num_sequences(), 1);
  EXPECT_EQ(cache.NumWritten(kSequence), 3) << "there is nothing to write";
  const Result<std::span<const TokenSlot>> readable = cache.Readable(0, kSequence, 2);
  ASSERT_TRUE(readable.ok());
  EXPECT_EQ(std::vector<TokenSlot>(readable->begin(), readable->end()),
            (std::vector<TokenSlot>{4, 5}));
  cache.Release(kSequence);
  EXPECT_EQ(cache.used_tokens(), 0);
  EXPECT_EQ(cache.Readable(0, kSequence, 1).status().code(), StatusCode::kNotFound);
  cache.Release(kSequence);
}

TEST(ModelledKvCache, OrdersThatContradictTheTablesAreRefused) {
  ModelledKvCache cache(100);
  const std::vector<TokenSlot> slot = {4}, beyond = {100};
  EXPECT_EQ(cache.Append(kSequence, 1, slot, kStep).code(), StatusCode::kCorrupt)
      << "a table starts at position 0";
  EXPECT_EQ(cache.Append(kSequence, 0, beyond, kStep).code(), StatusCode::kCorrupt);
  EXPECT_EQ(cache.num_sequences(), 0);
  ASSERT_TRUE(cache.Append(kSequence, 0, slot, kStep).ok());
  EXPECT_EQ(cache.Readable(0, kSequence, 2).status().code(), StatusCode::kCorrupt);
  EXPECT_TRUE(cache.WriteRaw(0, kSequence, 0, nullptr, nullptr, kStep).ok())
      << "the values are never read";
  EXPECT_EQ(cache.WriteRaw(0, kSequence, 1, nullptr, nullptr, kStep).code(), StatusCode::kCorrupt);
  EXPECT_EQ(cache.WriteRaw(0, SequenceId{8}, 0, nullptr, nullptr, kStep).code(),
            StatusCode::kNotFound);
  EXPECT_EQ(cache.WriteRaw(0, kSequence, 0, nullptr, nullptr, StepId{2}).code(),
            StatusCode::kNotFound)
      << "late";
}

}  // namespace modelled_kv_cache_test
}  // namespace lamina
