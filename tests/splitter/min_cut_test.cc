// The cut against its definition: all closed sets of operators are tried, on random small graphs.
#include "splitter/min_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "splitter/slices.h"

namespace lamina {
namespace {

// Appends an operator with an output of `bytes` bytes per token.
ValueId Append(Graph& graph, OpKind kind, std::vector<ValueId> inputs, int64_t bytes) {
  Op op;
  op.kind = kind;
  op.name = std::string(OpName(kind)) + std::to_string(graph.ops.size());
  op.inputs = std::move(inputs);
  op.output = static_cast<ValueId>(graph.values.size());
  graph.values.push_back({.name = op.name,
                          .width = bytes / 4,
                          .bytes_per_token = bytes,
                          .producer = static_cast<int32_t>(graph.ops.size())});
  graph.ops.push_back(std::move(op));
  return graph.ops.back().output;
}

Graph RandomGraph(std::mt19937& random, int num_ops) {
  Graph graph;
  Append(graph, OpKind::kTokens, {}, 0);
  const auto pick = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  while (static_cast<int>(graph.ops.size()) < num_ops) {
    const int num_values = static_cast<int>(graph.values.size());
    const bool attention = num_values > 2 && pick(4) == 0;
    std::vector<ValueId> inputs;
    const int num_inputs = attention ? 3 : 1 + pick(3);
    for (int i = 0; i < num_inputs; ++i)
      inputs.push_back(pick(2) == 0 ? num_values - 1 - pick(std::min(3, num_values))
                                    : pick(num_values));
    Append(graph, attention ? OpKind::kAttention : OpKind::kAdd, inputs, 4 * (1 + pick(4)));
  }
  graph.logits = static_cast<ValueId>(graph.values.size() - 1);
  return graph;
}

bool IsAttention(const Graph& graph, size_t op) { return graph.ops[op].kind == OpKind::kAttention; }

// Whether the ops whose bits are set in `before` may run before the attention and the others after
// it.
bool IsValidSide(const Graph& graph, size_t attention, uint32_t before) {
  const auto is_before = [&](size_t op) { return (before >> op & 1u) != 0; };
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (graph.ops[i].kind == OpKind::kTokens && !is_before(i)) return false;
    if (IsAttention(graph, i) && is_before(i) != (i < attention)) return false;
    for (const ValueId input : graph.ops[i].inputs) {
      const auto producer = static_cast<size_t>(graph.values[input].producer);
      if ((is_before(i) || i == attention) && !is_before(producer)) return false;
    }
  }
  return true;
}

int64_t Weight(const Graph& graph, size_t attention, uint32_t before) {
  int64_t bytes = 0;
  for (const Value& value : graph.values) {
    if ((before >> value.producer & 1u) == 0) continue;
    bool read_after = false;
    for (size_t reader = 0; reader < graph.ops.size(); ++reader) {
      const std::vector<ValueId>& inputs = graph.ops[reader].inputs;
      read_after |= reader != attention && (before >> reader & 1u) == 0 &&
                    std::ranges::find(inputs, graph.ops[value.producer].output) != inputs.end();
    }
    if (read_after) bytes += value.bytes_per_token;
  }
  return bytes;
}

struct Best {
  int64_t bytes = INT64_MAX;
  uint32_t largest = 0;  // union of all best sides
};

Best TryAll(const Graph& graph, size_t attention) {
  Best best;
  for (uint32_t before = 0; before < 1u << graph.ops.size(); ++before) {
    if (!IsValidSide(graph, attention, before)) continue;
    const int64_t bytes = Weight(graph, attention, before);
    if (bytes > best.bytes) continue;
    best.largest = bytes < best.bytes ? before : best.largest | before;
    best.bytes = bytes;
  }
  return best;
}

TEST(MinCutTest, IsTheLargestOfAllMinimumCutsOfRandomGraphs) {
  std::mt19937 random(20240611);
  int num_cuts = 0;
  for (int round = 0; round < 250; ++round) {
    const Graph graph = RandomGraph(random, 4 + round % 11);
    std::vector<bool> already(graph.ops.size(), false);
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      if (!IsAttention(graph, i)) continue;
      const Best best = TryAll(graph, i);
      Result<Cut> cut = CutAtAttention(graph, static_cast<int32_t>(i), already);
      ASSERT_TRUE(cut.ok()) << cut.status();
      EXPECT_EQ(cut->bytes_per_token, best.bytes) << "round " << round << ", " << graph.ops[i].name;
      for (size_t op = 0; op < graph.ops.size(); ++op) {
        EXPECT_EQ(cut->before[op], (best.largest >> op & 1u) != 0)
            << "round " << round << ", " << graph.ops[i].name << ": " << graph.ops[op].name;
      }
      already = cut->before;
      already[i] = true;
      ++num_cuts;
    }
  }
  EXPECT_GT(num_cuts, 300);
}

// CutAtAttention itself compares the weight of its cut with the maximum flow, which no cut is
// below.
TEST(MinCutTest, GraphsTooLargeToTryAllCutsAreCutAtTheirMaximumFlow) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const Graph graph = RandomGraph(random, 60);
    std::vector<bool> already(graph.ops.size(), false);
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      if (!IsAttention(graph, i)) continue;
      const Result<Cut> cut = CutAtAttention(graph, static_cast<int32_t>(i), already);
      ASSERT_TRUE(cut.ok()) << cut.status();
      already = cut->before;
      already[i] = true;
    }
  }
}

// norm, attention and MLP of one block that all read `x`; the sum is left to the caller.
struct ParallelBlock {
  explicit ParallelBlock(int64_t bytes) {
    const ValueId tokens = Append(graph, OpKind::kTokens, {}, 0);
    x = Append(graph, OpKind::kEmbedding, {tokens}, bytes);
    norm = Append(graph, OpKind::kRmsNorm, {x}, bytes);
    const ValueId q = Append(graph, OpKind::kLinear, {norm}, bytes);
    const ValueId k = Append(graph, OpKind::kLinear, {norm}, bytes);
    const ValueId v = Append(graph, OpKind::kLinear, {norm}, bytes);
    attention = Append(graph, OpKind::kAttention, {q, k, v}, bytes);
    out = Append(graph, OpKind::kLinear, {attention}, bytes);
    const ValueId up = Append(graph, OpKind::kLinear, {norm}, 4 * bytes);
    mlp = Append(graph, OpKind::kLinear, {up}, bytes);
  }
  Cut CutIt() {
    graph.logits = static_cast<ValueId>(graph.values.size() - 1);
    Result<Cut> cut = CutAtAttention(graph, graph.values[attention].producer,
                                     std::vector<bool>(graph.ops.size(), false));
    EXPECT_TRUE(cut.ok()) << cut.status();
    return cut.ok() ? *cut : Cut();
  }
  Graph graph;
  ValueId x, norm, attention, out, mlp;
};

TEST(MinCutTest, ParallelMlpRunsBeforeTheAttentionAndOnlyItsSumCrosses) {
  ParallelBlock block(64);
  const ValueId residual = Append(block.graph, OpKind::kAdd, {block.x, block.mlp}, 64);
  Append(block.graph, OpKind::kAdd, {residual, block.out}, 64);
  const Cut cut = block.CutIt();
  EXPECT_THAT(cut.values, ::testing::ElementsAre(residual));
  EXPECT_EQ(cut.bytes_per_token, 64);
}

TEST(MinCutTest, OfEqualCutsTheOneNearestTheAttentionsOutputIsTaken) {
  ParallelBlock block(64);  // x and norm would weigh as much as x and the MLP's output
  const ValueId branches = Append(block.graph, OpKind::kAdd, {block.out, block.mlp}, 64);
  Append(block.graph, OpKind::kAdd, {block.x, branches}, 64);
  const Cut cut = block.CutIt();
  EXPECT_THAT(cut.values, ::testing::ElementsAre(block.x, block.mlp));
}

TEST(MinCutTest, AValueWithSeveralReadersBehindTheCutCountsOnce) {
  ParallelBlock block(64);
  const ValueId a = Append(block.graph, OpKind::kAdd, {block.x, block.out}, 64);
  const ValueId b = Append(block.graph, OpKind::kAdd, {block.x, a}, 64);
  Append(block.graph, OpKind::kAdd, {block.x, b}, 64);
  const Cut cut = block.CutIt();
  EXPECT_THAT(cut.values, ::testing::ElementsAre(block.x));
  EXPECT_EQ(cut.bytes_per_token, 64);
}

TEST(MinCutTest, RejectsWhatCannotStandBeforeTheAttention) {
  ParallelBlock block(64);
  block.graph.logits = block.mlp;
  std::vector<bool> already(block.graph.ops.size(), false);
  already[block.graph.values[block.out].producer] = true;
  const Result<Cut> cut =
      CutAtAttention(block.graph, block.graph.values[block.attention].producer, already);
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(cut.status().message(), ::testing::HasSubstr("attention6"));
}

}  // namespace
}  // namespace lamina
