#include "bench/kernels/kv_churn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace lamina {
namespace {

int64_t TotalTokens(const std::vector<std::vector<TokenSlot>>& tables) {
  int64_t total = 0;
  for (const auto& table : tables) total += static_cast<int64_t>(table.size());
  return total;
}

TEST(KvChurn, KeepsTheSlabFullAndEverySlotOnce) {
  const KvChurn churn = {4096, 128, 0.9, 500, 3};
  const auto tables = *RunChurn(churn);
  std::set<TokenSlot> slots;
  for (const auto& table : tables) slots.insert(table.begin(), table.end());
  EXPECT_EQ(static_cast<int64_t>(slots.size()), TotalTokens(tables));
  EXPECT_LT(*slots.rbegin(), 4096u);
  EXPECT_GT(TotalTokens(tables), 4096 * 0.9 - 128);
}

TEST(KvChurn, IsAFunctionOfItsSeed) {
  EXPECT_EQ(*RunChurn({2048, 64, 0.9, 200, 1}), *RunChurn({2048, 64, 0.9, 200, 1}));
  EXPECT_NE(*RunChurn({2048, 64, 0.9, 200, 1}), *RunChurn({2048, 64, 0.9, 200, 2}));
}

// It would wait for room for ever.
TEST(KvChurn, RefusesPromptsThatNeverFit) {
  const auto tables = RunChurn({1000, 901, 0.9, 10, 1});
  EXPECT_EQ(tables.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(tables.status().message(), ::testing::HasSubstr("expected 2 to 900"));
  EXPECT_FALSE(RunChurn({1000, 1, 0.9, 10, 1}).ok()) << "it would generate none";
  EXPECT_TRUE(RunChurn({1000, 900, 0.9, 10, 1}).ok());
}

// What attention after churn lives on.
TEST(KvChurn, TheAllocatorKeepsLongRuns) {
  for (const uint32_t seed : {1, 2, 3}) {
    EXPECT_GT(MeanRunTokens(*RunChurn({16384, 1024, 0.9, 2000, seed})), 100);
    EXPECT_GT(MeanRunTokens(*RunChurn({16384, 128, 0.9, 2000, seed})), 30);
  }
}

TEST(KvChurn, FreshTablesAreRunsOfTheSameLengths) {
  const std::vector<std::vector<TokenSlot>> tables = {{9, 2, 3}, {7}, {4, 5}};
  const std::vector<std::vector<TokenSlot>> fresh = {{0, 1, 2}, {3}, {4, 5}};
  EXPECT_EQ(FreshTables(tables), fresh);
  EXPECT_DOUBLE_EQ(MeanRunTokens(tables), 6.0 / 4);
  EXPECT_DOUBLE_EQ(MeanRunTokens(fresh), 2.0);
}

}  // namespace
}  // namespace lamina
