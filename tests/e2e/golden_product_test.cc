// The golden continuations under every pipeline, with every partition of attention, on 1 to 3
// compute nodes and 1 to 4 memory nodes. golden_test.cc looks closer at fewer set-ups.
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/expect_golden.h"
#include "tests/support/serving.h"

namespace lamina::testing {
namespace {

// By request; by kv_head, where 3 nodes share 4 heads unevenly; by token range; by both.
struct Partition {
  int num_memory_nodes, kv_head_parallel;
  int64_t spread_tokens;
};
constexpr Partition kPartitions[] = {{1, 1, 0},  {2, 1, 0},  {3, 1, 0},  {4, 1, 0},
                                     {2, 2, 0},  {3, 3, 0},  {4, 4, 0},  {4, 2, 0},
                                     {2, 1, 16}, {3, 1, 16}, {4, 1, 16}, {4, 2, 16}};

class GoldenProduct : public ::testing::TestWithParam<Deployment> {};

TEST_P(GoldenProduct, AllPromptsAtOnce) {
  Result<std::unique_ptr<Serving>> serving = Serving::Create(GetParam());
  ASSERT_TRUE(serving.ok()) << serving.status();
  Engine& engine = *(*serving)->engine;
  ExpectGolden(engine, GoldenPrompts(GetParam().kv_dtype), std::chrono::seconds(60),
               LogprobTolerance(GetParam().kv_dtype));
  EXPECT_EQ(AwaitNoTokens(engine, Deadline::After(std::chrono::seconds(10))), "");
}

std::vector<Deployment> Product() {
  std::vector<Deployment> all;
  for (const int num_compute_nodes : {1, 2, 3}) {
    for (const PipelineMode pipeline : {PipelineMode::kNone, PipelineMode::kFixed,
                                        PipelineMode::kRotational, PipelineMode::kAuto}) {
      for (const Partition& partition : kPartitions) {
        Deployment deployment;
        deployment.num_compute_nodes = num_compute_nodes;
        deployment.pipeline = pipeline;
        deployment.num_memory_nodes = partition.num_memory_nodes;
        deployment.kv_head_parallel = partition.kv_head_parallel;
        deployment.spread_tokens = partition.spread_tokens;
        deployment.kv_dtype = partition.num_memory_nodes == 2   ? DType::kF8
                              : partition.num_memory_nodes == 4 ? DType::kBF16
                                                                : DType::kF32;
        all.push_back(deployment);
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Deployments, GoldenProduct, ::testing::ValuesIn(Product()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace lamina::testing
