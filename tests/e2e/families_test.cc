// Every model family and every format of quantized weights over real processes: the greedy tokens
// that the fixtures' oracles choose.
#include <gtest/gtest.h>

#include <ostream>

#include "tests/support/families.h"
#include "tests/support/serving.h"

namespace lamina::testing {
namespace {

struct FamilyCase {
  std::string family;
  int num_memory_nodes = 2;
  int kv_head_parallel = 1;
  int64_t spread_tokens = 0;
  int tensor_parallel_size = 1;
  Switch overlap = Switch::kOff;
  int num_compute_nodes = 1;
  int pipeline_parallel_size = 1;

  Deployment deployment() const {
    Deployment deployment;
    deployment.model = FamilyOf(family).dir;
    deployment.kv_dtype = DType::kF32;
    deployment.num_memory_nodes = num_memory_nodes;
    deployment.kv_head_parallel = kv_head_parallel;
    deployment.spread_tokens = spread_tokens;
    deployment.tensor_parallel_size = tensor_parallel_size;
    deployment.overlap = overlap;
    deployment.num_compute_nodes = num_compute_nodes;
    deployment.pipeline_parallel_size = pipeline_parallel_size;
    deployment.max_num_seqs = 8;
    deployment.max_num_batched_tokens = 11;  // the prompt comes in two chunks
    return deployment;
  }
};

void PrintTo(const FamilyCase& c, std::ostream* out) { *out << c.family; }

class FamiliesServedTest : public ::testing::TestWithParam<FamilyCase> {};

// Two requests at a time, so that with whole sequences on a node both memory nodes have one.
TEST_P(FamiliesServedTest, TokensAreThoseOfTransformers) {
  const FamilyGolden golden = FamilyOf(GetParam().family).Golden();
  Result<std::unique_ptr<Serving>> serving = Serving::Create(GetParam().deployment());
  ASSERT_TRUE(serving.ok()) << serving.status();
  std::vector<Collector> collectors(2);
  for (const Collector& collector : collectors) {
    const auto request = GreedyRequest(golden.prompt, std::ssize(golden.tokens));
    ASSERT_TRUE((*serving)->engine->Submit(request, collector.sink()).ok());
  }
  for (const Collector& collector : collectors) {
    ASSERT_TRUE(collector.Wait(Deadline::After(std::chrono::seconds(60))));
    const Generated got = collector.results()[0];
    ASSERT_TRUE(got.error.ok()) << got.error;
    EXPECT_EQ(got.tokens, golden.tokens);
  }
  EXPECT_EQ(AwaitNoTokens(*(*serving)->engine, Deadline::After(std::chrono::seconds(10))), "");
}

std::vector<FamilyCase> AllCases() {
  std::vector<FamilyCase> all;
  for (const Family& family : Families()) all.push_back({.family = family.name});
  // A window of 12 tokens: shared by heads, by ranges that are shorter and longer than it, and with
  // q ahead of k and v.
  all.push_back({.family = "mistral", .kv_head_parallel = 2});
  all.push_back({.family = "mistral", .num_memory_nodes = 3, .spread_tokens = 5});
  all.push_back({.family = "qwen2-window", .spread_tokens = 16, .overlap = Switch::kOn});
  // What ranks share by head or element.
  for (const char* name : {"qwen3", "opt", "gemma2", "mixtral", "gptneox", "gpt2", "llama-yarn",
                           "qwen2-moe", "qwen3-moe", "gemma3", "phi3", "granite", "glm", "glm4",
                           "nemotron", "stablelm", "stablelm-12b", "gpt-oss", "llama4"})
    all.push_back({.family = name, .kv_head_parallel = 2, .tensor_parallel_size = 2});
  // A sink is counted once, wherever the tokens of a sequence are, and whoever merges.
  all.push_back({.family = "gpt-oss", .num_memory_nodes = 3, .spread_tokens = 5});
  all.push_back({.family = "gpt-oss", .spread_tokens = 16, .overlap = Switch::kOn});
  // A node knows of the tokens that it holds which are of a row's chunk.
  all.push_back({.family = "llama4", .num_memory_nodes = 3, .spread_tokens = 5});
  all.push_back({.family = "llama4", .spread_tokens = 16, .overlap = Switch::kOn});
  all.push_back({.family = "llama4", .pipeline_parallel_size = 2});
  all.push_back({.family = "gpt-oss", .num_compute_nodes = 2});
  all.push_back({.family = "gpt-oss", .pipeline_parallel_size = 2});
  // Ranks share 96 inputs, so the second one's begin amid a group of 32 and a block of 40.
  for (const Family& family : QuantizedFamilies()) {
    all.push_back({.family = family.name});
    all.push_back({.family = family.name, .tensor_parallel_size = 2});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, FamiliesServedTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& info) {
                           return TestName(FamilyOf(info.param.family)) + "_on_" +
                                  info.param.deployment().Name();
                         });

}  // namespace
}  // namespace lamina::testing
