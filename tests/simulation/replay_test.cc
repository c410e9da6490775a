// Sequences that start again compute what they computed before: the same tokens and the same bits
// of their log-probabilities, also where decode rows come to other bits than a prefill, because q
// and the outputs of attention are rounded on the wire.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "tests/support/golden_prompts.h"
#include "tests/support/virtual_cluster.h"

namespace lamina::testing {
namespace {

using std::chrono::seconds;

constexpr size_t kNumRequests = 8;
constexpr int64_t kNewTokens = 24;

struct Case {
  std::string name;
  Deployment deployment;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, auto change) {
    change(cases.emplace_back(Case{name, {}}).deployment);
  };
  add("Float32", [](Deployment&) {});
  add("Bfloat16OnTheWire", [](Deployment& of) { of.wire_dtype = DType::kBF16; });
  add("Float16OnTheWire", [](Deployment& of) { of.wire_dtype = DType::kF16; });
  add("RotatingAndBfloat16", [](Deployment& of) {
    of.num_compute_nodes = 2;
    of.pipeline = PipelineMode::kRotational;
    of.wire_dtype = DType::kBF16;
  });
  return cases;
}

// What all requests come to. `disturb` is called after each round of turns.
std::vector<Generated> Answers(
    const Deployment& deployment,
    const std::function<void(VirtualCluster&, int64_t num_told)>& disturb) {
  Result<std::unique_ptr<VirtualCluster>> made = VirtualCluster::Create(deployment);
  EXPECT_TRUE(made.ok()) << made.status();
  if (!made.ok()) return {};
  VirtualCluster& cluster = **made;
  EXPECT_TRUE(cluster.RunUntil([&] { return cluster.serves(); }, seconds(10)));
  std::vector<Collector> collectors(kNumRequests);
  const std::vector<GoldenPrompt> prompts = GoldenPrompts();
  for (size_t i = 0; i < kNumRequests; ++i) {
    GenerateRequest request = GreedyRequest(prompts[i].prompt_ids, kNewTokens);
    request.ignore_eos = true;
    request.sampling.temperature = i % 2 == 0 ? 0 : 1;
    request.sampling.seed = i;
    EXPECT_TRUE(cluster.Submit(request, collectors[i].sink()).ok());
  }
  const auto is_over = [&] {
    int64_t num_told = 0;
    bool over = true;
    for (const Collector& each : collectors) {
      num_told += std::ssize(each.results()[0].tokens);
      over = over && each.results()[0].finished;
    }
    disturb(cluster, num_told);
    return over;
  };
  EXPECT_TRUE(cluster.RunUntil(is_over, seconds(120)));
  std::vector<Generated> all;
  for (const Collector& each : collectors) all.push_back(each.results()[0]);
  return all;
}

void ExpectSameBits(const std::vector<Generated>& got, const std::vector<Generated>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(got[i].error.ok()) << got[i].error;
    EXPECT_EQ(got[i].tokens, expected[i].tokens) << i;
    EXPECT_EQ(got[i].logprobs, expected[i].logprobs) << i;
  }
}

class Replay : public ::testing::TestWithParam<Case> {
 protected:
  static void LeaveAlone(VirtualCluster&, int64_t) {}
};

TEST_P(Replay, AfterTheLossOfAMemoryNode) {
  const std::vector<Generated> expected = Answers(GetParam().deployment, LeaveAlone);
  // While prompts are prefilled, and in the middle of the answers.
  for (const int64_t when : {0, 3, 70}) {
    SCOPED_TRACE(when);
    bool killed = false;
    const std::vector<Generated> got =
        Answers(GetParam().deployment, [&](VirtualCluster& cluster, int64_t num_told) {
          if (killed || num_told < when) return;
          killed = true;
          cluster.Kill("m1");
        });
    EXPECT_TRUE(killed);
    ExpectSameBits(got, expected);
  }
}

TEST_P(Replay, AfterAPreemption) {
  const std::vector<Generated> expected = Answers(GetParam().deployment, LeaveAlone);
  Deployment crowded = GetParam().deployment;
  crowded.num_memory_nodes = 1;
  crowded.prefix_caching = false;  // what was preempted would find its own K and V again
  crowded.memory_bytes = int64_t{120} << 10;
  int64_t num_preemptions = 0;
  const std::vector<Generated> got = Answers(crowded, [&](VirtualCluster& cluster, int64_t) {
    num_preemptions = cluster.status().scheduler.num_preemptions;
  });
  EXPECT_GT(num_preemptions, 0);
  ExpectSameBits(got, expected);
}

INSTANTIATE_TEST_SUITE_P(Wires, Replay, ::testing::ValuesIn(Cases()),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace lamina::testing
