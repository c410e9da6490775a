// Compute nodes that are killed, stop for ever or for a while as requests run, in every way in
// which nodes share the work and at every point of a request: none fails, and each gets the tokens
// and the log-probabilities of a run in which nothing happened. Memory nodes keep their KV, so that
// nothing that decodes is prefilled again.
#include <gtest/gtest.h>

#include "tests/e2e/recovery_run.h"

namespace lamina::testing {
namespace {

class ComputeNodes : public RecoveryRun, public ::testing::WithParamInterface<RecoveryCase> {
 protected:
  // Whether nothing can be computed without the victim: its daemon is started again then.
  bool is_needed() const { return scenario().has_one_compute_node() || scenario().shares_model(); }
  void HarmTheVictim();
};

void ComputeNodes::HarmTheVictim() {
  const std::string& victim = GetParam().victim;
  switch (GetParam().harm) {
    case Harm::kKilled:
      ASSERT_NO_FATAL_FAILURE(Send(victim, SIGKILL));
      if (!is_needed()) return;
      Leave(milliseconds(300));
      return Restart(victim);
    case Harm::kStopped:
      ASSERT_NO_FATAL_FAILURE(Send(victim, SIGSTOP));
      // Where another node has told of its loss first, it is still to be connected anew.
      ASSERT_TRUE(AwaitTrue([&] { return Node(victim).state != NodeState::kReady; },
                            Deadline::After(seconds(30))));
      if (!is_needed()) return;
      ASSERT_NO_FATAL_FAILURE(Send(victim, SIGKILL));
      return Restart(victim);
    case Harm::kPaused:
      ASSERT_NO_FATAL_FAILURE(Send(victim, SIGSTOP));
      Leave(seconds(3));
      return Send(victim, SIGCONT);
  }
}

TEST_P(ComputeNodes, EveryRequestGoesOnAsIfNothingHadHappened) {
  const auto& [of, transport, harm, victim] = GetParam();
  ASSERT_NO_FATAL_FAILURE(Serve(of));
  ASSERT_NO_FATAL_FAILURE(BringToTheMoment(victim, "m0"));
  const int64_t started = num_started_tokens();
  ASSERT_NO_FATAL_FAILURE(HarmTheVictim());
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
  const bool is_back = harm == Harm::kPaused || is_needed();
  EXPECT_TRUE(AwaitState(victim, is_back ? NodeState::kReady : NodeState::kLost));
  if (of.decodes()) {
    EXPECT_EQ(num_started_tokens(), started) << "nothing is prefilled again";
  }
}

// Scenarios that have one compute node are run with a second one too.
std::vector<Variant> EachComputeNode(const Scenario& scenario) {
  if (!scenario.has_one_compute_node()) return EachOf(scenario, 'c', 2);
  Scenario with_two = scenario;
  with_two.name += "_two_compute_nodes";
  with_two.deployment.num_compute_nodes = 2;
  with_two.deployment.pipeline = PipelineMode::kFixed;  // both compute from the first step on
  return {{scenario, "c0"}, {with_two, "c0"}, {with_two, "c1"}};
}

// A standby takes the victim's place, and nobody has to start a daemon again.
class WithStandby : public RecoveryRun, public ::testing::WithParamInterface<RecoveryCase> {};

TEST_P(WithStandby, NobodyWaitsForTheDaemonThatIsLost) {
  const auto& [of, transport, harm, victim] = GetParam();
  ASSERT_NO_FATAL_FAILURE(Serve(of));
  ASSERT_TRUE(AwaitState("s0", NodeState::kStandby));
  ASSERT_NO_FATAL_FAILURE(BringToTheMoment(victim, "m0"));
  const int64_t started = num_started_tokens();
  ASSERT_NO_FATAL_FAILURE(Send(victim, harm == Harm::kKilled ? SIGKILL : SIGSTOP));
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
  EXPECT_TRUE(AwaitState("s0", NodeState::kReady));
  EXPECT_EQ(Node(victim).state, NodeState::kLost);
  if (of.decodes()) {
    EXPECT_EQ(num_started_tokens(), started) << "nothing is prefilled again";
  }
  if (harm != Harm::kKilled) return;
  ASSERT_NO_FATAL_FAILURE(Restart(victim));
  EXPECT_TRUE(AwaitState(victim, NodeState::kStandby));
}

std::vector<RecoveryCase> StandbyCases() {
  std::vector<RecoveryCase> all = RecoveryCases([](Scenario scenario) {
    scenario.deployment.num_standbys = 1;
    return EachOf(scenario, 'c', scenario.has_one_compute_node() ? 1 : 2);
  });
  std::erase_if(all, [](const RecoveryCase& one) { return one.harm == Harm::kPaused; });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Losses, WithStandby, ::testing::ValuesIn(StandbyCases()),
                         [](const auto& info) { return info.param.Name(); });

INSTANTIATE_TEST_SUITE_P(Losses, ComputeNodes, ::testing::ValuesIn(RecoveryCases(EachComputeNode)),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace lamina::testing
