// Memory nodes that are killed, stop for ever or for a while as requests run, in every way in which
// nodes share the work and at every point of a request: none fails, and each gets the tokens and
// the log-probabilities of a run in which nothing happened.
#include <gtest/gtest.h>

#include "tests/e2e/recovery_run.h"

namespace lamina::testing {
namespace {

class MemoryNodes : public RecoveryRun, public ::testing::WithParamInterface<RecoveryCase> {};

TEST_P(MemoryNodes, EveryRequestGoesOnAsIfNothingHadHappened) {
  const auto& [of, transport, harm, victim] = GetParam();
  ASSERT_NO_FATAL_FAILURE(Serve(of));
  ASSERT_NO_FATAL_FAILURE(BringToTheMoment(victim, victim));
  const int64_t started = num_started_tokens();
  ASSERT_NO_FATAL_FAILURE(Send(victim, harm == Harm::kKilled ? SIGKILL : SIGSTOP));
  if (harm == Harm::kPaused) {
    const Deadline end = Deadline::After(seconds(3));
    EXPECT_TRUE(AwaitState(victim, NodeState::kSuspended, end));
    Leave(end.at() - Clock::now());
    ASSERT_NO_FATAL_FAILURE(Send(victim, SIGCONT));
  }
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
  // It may still answer what it was asked before others took its place.
  EXPECT_TRUE(AwaitState(victim, harm == Harm::kPaused ? NodeState::kReady : NodeState::kLost));
  if (harm == Harm::kPaused && of.decodes()) {
    EXPECT_EQ(num_started_tokens(), started) << "nothing is prefilled again";
  }
}

std::vector<Variant> EachMemoryNode(const Scenario& scenario) {
  return EachOf(scenario, 'm', scenario.deployment.num_memory_nodes);
}

INSTANTIATE_TEST_SUITE_P(Losses, MemoryNodes, ::testing::ValuesIn(RecoveryCases(EachMemoryNode)),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace lamina::testing
