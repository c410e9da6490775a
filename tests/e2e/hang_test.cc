// Memory nodes whose process does not run for a while: their streams pause, and nothing is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/support/serving.h"

namespace lamina::testing {
namespace hang_test {

using std::chrono::seconds;

constexpr int kLong = 400;  // tokens: enough to be in the middle of them

std::vector<Collector> SubmitLong(Engine& engine, int n) {
  std::vector<Collector> collectors(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) {
    GenerateRequest request = GreedyRequest({1, 100 + i, 300, 301}, kLong);
    request.ignore_eos = true;
    const Status added =
        engine.Submit(std::move(request), collectors[static_cast<size_t>(i)].sink()).status();
    EXPECT_TRUE(added.ok()) << added;
  }
  return collectors;
}

NodeState StateOf(Engine& engine, const std::string& name) {
  for (const NodeStatus& node : engine.status().nodes) {
    if (node.name == name) return node.state;
  }
  return NodeState::kLost;
}

struct HangCase {
  std::string name;
  Deployment deployment;
};

std::vector<HangCase> HangCases() {
  std::vector<HangCase> all;
  for (const TransportKind transport : {TransportKind::kShm, TransportKind::kTcp}) {
    const auto add = [&](const char* shape, auto change) {
      HangCase& one = all.emplace_back();
      one.name = std::string(shape) + "_" + std::string(TransportKindName(transport));
      one.deployment.transport = transport;
      change(one.deployment);
    };
    add("alone", [](Deployment&) {});
    add("rotational", [](Deployment& of) {
      of.num_compute_nodes = 2;
      of.pipeline = PipelineMode::kRotational;
    });
    add("stages", [](Deployment& of) { of.pipeline_parallel_size = 2; });
    add("ranks", [](Deployment& of) {
      of.tensor_parallel_size = of.kv_head_parallel = 2;
      of.num_memory_nodes = 4;
    });
  }
  return all;
}

class HangTest : public ::testing::TestWithParam<HangCase> {};

// By half a second before the end the others must be far ahead: they wait for suspect_after.
TEST_P(HangTest, AMemoryNodeThatIsStoppedForThreeSecondsCostsItsStreamsThatTime) {
  const Result<std::unique_ptr<Serving>> serving = Serving::Create(GetParam().deployment);
  ASSERT_TRUE(serving.ok()) << serving.status();
  Engine& engine = *(*serving)->engine;
  LocalCluster& cluster = *(*serving)->cluster;
  std::vector<std::vector<TokenId>> expected;
  for (const Collector& collector : SubmitLong(engine, 6)) {
    ASSERT_TRUE(collector.Wait(Deadline::After(seconds(60))));
    expected.push_back(collector.results()[0].tokens);
  }

  const std::vector<Collector> collectors = SubmitLong(engine, 6);
  for (const Collector& collector : collectors)
    ASSERT_TRUE(collector.WaitForTokens(20, Deadline::After(seconds(30))));
  const int64_t started = engine.status().scheduler.num_started_tokens;
  const Deadline stopped_until = Deadline::After(seconds(3));
  ASSERT_TRUE(cluster.Kill("m1", SIGSTOP).ok());
  EXPECT_TRUE(
      AwaitTrue([&] { return StateOf(engine, "m1") == NodeState::kSuspended; }, stopped_until));
  EXPECT_EQ(engine.status().scheduler.num_suspended, 3) << "half of the streams are on each node";
  const auto num_tokens = [&] {
    std::vector<size_t> all;
    for (const Collector& collector : collectors)
      all.push_back(collector.results()[0].tokens.size());
    return all;
  };
  const std::vector<size_t> before = num_tokens();
  const auto num_that_go_on = [&] {
    const std::vector<size_t> after = num_tokens();
    int num = 0;
    for (size_t i = 0; i < after.size(); ++i)
      num += after[i] > before[i] || after[i] == kLong ? 1 : 0;
    return num;
  };
  EXPECT_TRUE(AwaitTrue([&] { return num_that_go_on() == 3; }, stopped_until));
  AwaitTrue([&] { return stopped_until.Passed(); }, Deadline::After(seconds(5)));
  EXPECT_EQ(num_that_go_on(), 3);
  ASSERT_TRUE(cluster.Kill("m1", SIGCONT).ok());

  for (size_t i = 0; i < collectors.size(); ++i) {
    ASSERT_TRUE(collectors[i].Wait(Deadline::After(seconds(30)))) << "request " << i << " hangs";
    EXPECT_EQ(collectors[i].results()[0].reason, FinishReason::kLength);
    EXPECT_EQ(collectors[i].results()[0].tokens, expected[i]) << "request " << i;
  }
  EXPECT_EQ(engine.status().scheduler.num_started_tokens, started) << "nothing is prefilled again";
  EXPECT_EQ(StateOf(engine, "m1"), NodeState::kReady);
  EXPECT_EQ(AwaitNoTokens(engine, Deadline::After(seconds(10))), "");
}

INSTANTIATE_TEST_SUITE_P(Shapes, HangTest, ::testing::ValuesIn(HangCases()),
                         [](const auto& of) { return of.param.name; });

}  // namespace hang_test
}  // namespace lamina::testing
