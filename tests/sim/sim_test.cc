// The first seeds of the simulation, and that it is worth something: it sees what it is for, and
// it is a function of its seed.
#include <gtest/gtest.h>

#include "tests/sim/oracles.h"
#include "tests/sim/world.h"
#include "tests/support/sanitized.h"

namespace lamina::sim {
namespace {

// With a sanitizer a tenth of the seeds takes as long, which is too few to meet with everything.
constexpr uint64_t kNumSeeds = testing::kSanitized ? 150 : 1500;
constexpr bool kSeesAll = !testing::kSanitized;
constexpr uint64_t kNumRepeated = 20;

class Simulation : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    Result<std::unique_ptr<Expected>> made = Expected::Create();
    ASSERT_TRUE(made.ok()) << made.status();
    expected_ = std::move(*made).release();
  }
  static void TearDownTestSuite() { delete expected_; }

  static inline Expected* expected_ = nullptr;
};

TEST_F(Simulation, NoSeedFails) {
  Coincidences seen;
  for (uint64_t seed = 1; seed <= kNumSeeds; ++seed) {
    const RunResult result = RunScenario(DrawScenario(seed), *expected_);
    seen.Add(result.seen);
    EXPECT_EQ(result.failure, "") << "seed " << seed << "; replay: sim_cluster --verbose --seed "
                                  << seed;
  }
  for (size_t i = 0; kSeesAll && i < kNumCoincidences; ++i) {
    const auto coincidence = static_cast<Coincidence>(i);
    EXPECT_GT(seen.count(coincidence), 0u) << "never seen: " << NameOf(coincidence);
  }
}

TEST_F(Simulation, ARunIsAFunctionOfItsSeed) {
  for (uint64_t seed = 1; seed <= kNumRepeated; ++seed) {
    const RunResult first = RunScenario(DrawScenario(seed), *expected_);
    const RunResult again = RunScenario(DrawScenario(seed), *expected_);
    EXPECT_EQ(first.hash, again.hash) << "seed " << seed;
    EXPECT_GT(first.num_events, 0u);
  }
  EXPECT_NE(RunScenario(DrawScenario(1), *expected_).hash,
            RunScenario(DrawScenario(2), *expected_).hash);
}

TEST_F(Simulation, PartsOfASeedCanBeLeftOut) {
  Scenario scenario = DrawScenario(3);
  const size_t num_requests = scenario.requests.size();
  ASSERT_GT(num_requests, 1u);
  EXPECT_FALSE(DropParts(scenario, "r99"));
  EXPECT_TRUE(DropParts(scenario, "r0"));
  EXPECT_EQ(scenario.requests.size(), num_requests - 1);
  EXPECT_EQ(scenario.requests.front().name, "r1");
}

TEST(StepOracleTest, RowsFailWithTheirMemoryNodeOnly) {
  const auto failed = [](Status why) {
    StepResult result;
    result.failed.push_back({SequenceId{1}, std::move(why), FailureCause::kKvLost});
    return result;
  };
  Scenario scenario;
  StepOracle oracle(scenario);
  EXPECT_EQ(oracle.Take(failed(PeerLost("memory node m0 is lost"))), "");
  EXPECT_EQ(oracle.Take(failed(TimedOut("memory node m0 is suspended"))), "");
  EXPECT_NE(oracle.Take(failed(NotFound("sequence 1 is not stored here"))), "");
  scenario.faults.push_back({.kind = FaultKind::kLoseNotification});
  EXPECT_EQ(StepOracle(scenario).Take(failed(Corrupt("not all of them were written"))), "");
}

TEST(StepOracleTest, StepsDoNotComeToNothingForEver) {
  StepOracle oracle{Scenario()};
  StepResult with_token;
  with_token.sampled.push_back({SequenceId{1}, {}});
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(oracle.Take(StepResult()), "");
    EXPECT_EQ(oracle.Take(with_token), "");
  }
  std::string wrong;
  for (int i = 0; i < 100 && wrong.empty(); ++i) wrong = oracle.Take(StepResult());
  EXPECT_NE(wrong, "");
}

}  // namespace
}  // namespace lamina::sim
