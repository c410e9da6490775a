#include "cost/network_cost.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

TEST(NetworkCost, ARowSendsQKAndVAndGetsItsOutputBack) {
  const AttentionHeads alike{
      .num_heads = 40, .num_kv_heads = 40, .head_dim = 128, .dtype = DType::kF16};
  const RowBytes bytes = AttentionRowBytes(alike, 2);
  EXPECT_EQ(bytes.to_memory, 3 * 2 * 5120);
  EXPECT_EQ(bytes.from_memory, 2 * 5120);
  EXPECT_EQ(bytes.both(), 4 * 2 * 5120) << "4 e d";
  EXPECT_EQ(AttentionRowBytes(alike, 4).both(), (2 * 4 + 2 * 2) * 5120)
      << "q and outputs as float32, k and v as stored";

  const AttentionHeads grouped{
      .num_heads = 64, .num_kv_heads = 8, .head_dim = 128, .dtype = DType::kBF16};
  EXPECT_EQ(AttentionRowBytes(grouped, 2).both(), 2 * 8192 * (2 + 2.0 / 8)) << "e d (2 + 2 / G)";
}

TEST(NetworkCost, TheKvCacheOfThePapersModels) {
  EXPECT_EQ(KvBytesPerToken(
                {.num_heads = 64, .num_kv_heads = 8, .head_dim = 128, .dtype = DType::kBF16}, 80),
            327'680);
  EXPECT_EQ(KvBytesPerToken(
                {.num_heads = 40, .num_kv_heads = 40, .head_dim = 128, .dtype = DType::kF16}, 40),
            819'200);
}

TEST(NetworkCost, ScalesOfKAndVTravelAndAreStored) {
  const AttentionHeads heads{
      .num_heads = 64, .num_kv_heads = 8, .head_dim = 128, .dtype = DType::kI8Scaled};
  EXPECT_EQ(AttentionRowBytes(heads, 2).to_memory, 2 * 8192 + 2 * 8 * (128 + 4));
  EXPECT_EQ(KvBytesPerToken(heads, 80), 80 * 2 * 8 * (128 + 4));
}

TEST(NetworkCost, ALinkTakesItsLatencyAndTheBytesTime) {
  EXPECT_DOUBLE_EQ((Link{33e-6, 25}.Seconds(25e3)), 34e-6);
  EXPECT_DOUBLE_EQ((Link{33e-6, 0}.Seconds(25e3)), 33e-6);
  EXPECT_DOUBLE_EQ(NeededGbPerS(5e9, 0.5), 10);
}

}  // namespace
}  // namespace lamina
