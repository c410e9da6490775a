// The manager is killed, hangs or pauses as requests of a front run, in every way in which nodes
// share the work and at every point of a request: none fails, and each gets the tokens and the
// log-probabilities of a run in which nothing happened. This process is the front.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/recovery_run.h"
#include "tests/support/server_process.h"

namespace lamina::testing {
namespace {

using ::testing::HasSubstr;

class Managers : public RecoveryRun, public ::testing::WithParamInterface<RecoveryCase> {
 protected:
  void StartNext() {
    const Status started = manager().Start();
    ASSERT_TRUE(started.ok()) << started;
  }
  void Kill() {
    manager().Send(SIGKILL);
    manager().AwaitEnd(Deadline::After(seconds(10)));
  }
  bool AwaitServing(bool serving) {
    return AwaitTrue([&] { return engine().status().serving == serving; },
                     Deadline::After(seconds(30)));
  }
  void HarmTheManager();
  // All streams had tokens, and their K and V lie where the next manager can find them.
  bool LeavesItsKv() const {
    const auto& [of, transport, harm, victim] = GetParam();
    return harm != Harm::kPaused && of.decodes() && of.deployment.spread_tokens == 0;
  }
};

void Managers::HarmTheManager() {
  switch (GetParam().harm) {
    case Harm::kKilled:
      Kill();
      Leave(milliseconds(300));
      return StartNext();
    case Harm::kStopped:
      manager().Send(SIGSTOP);
      ASSERT_TRUE(AwaitServing(false));
      Kill();
      return StartNext();
    case Harm::kPaused:
      manager().Send(SIGSTOP);
      Leave(seconds(3));
      return manager().Send(SIGCONT);
  }
}

TEST_P(Managers, EveryRequestGoesOnWithTheNextOne) {
  const auto& [of, transport, harm, victim] = GetParam();
  ASSERT_NO_FATAL_FAILURE(Serve(of, Serving::CreateWithManager));
  ASSERT_NO_FATAL_FAILURE(BringToTheMoment(victim, "m0"));
  ASSERT_NO_FATAL_FAILURE(HarmTheManager());
  EXPECT_TRUE(AnyUnderWay() || harm == Harm::kPaused) << "it was harmed too late";
  if (of.moment == Moment::kLastChunk) {
    ASSERT_NO_FATAL_FAILURE(Send(victim, SIGCONT));
  }
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
  if (LeavesItsKv()) {
    const SchedulerStats stats = engine().status().scheduler;
    EXPECT_GE(stats.num_left_tokens, 99 * stats.num_started_tokens)
        << "of so many tokens the next manager computed K and V anew";
    EXPECT_GT(stats.num_left_tokens, 0);
  }
}

// The victim is the node that stops before a last chunk.
INSTANTIATE_TEST_SUITE_P(Losses, Managers,
                         ::testing::ValuesIn(RecoveryCases([](const Scenario& scenario) {
                           return EachOf(scenario, 'm', 1);
                         })),
                         [](const auto& info) { return info.param.Name(); });

// The second manager is killed while it connects nodes, and so is the third, as it prefills what
// the first one had.
TEST_F(RecoveryRun, ManagersThatAreKilledOneAfterTheOther) {
  ASSERT_NO_FATAL_FAILURE(Serve(SharedPrefix(), Serving::CreateWithManager));
  ASSERT_NO_FATAL_FAILURE(BringToTheMoment("m0", "m0"));
  for (const Clock::duration lives : {milliseconds(15), milliseconds(60), milliseconds(150)}) {
    manager().Send(SIGKILL);
    manager().AwaitEnd(Deadline::After(seconds(10)));
    ASSERT_TRUE(manager().Start().ok());
    Leave(lives);
  }
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
}

// The only compute node and a memory node go with the manager.
TEST_F(RecoveryRun, TheManagerAndNodesAreKilledTogether) {
  Scenario scenario = Plain("plain");
  scenario.deployment.peer_timeout = seconds(1);
  ASSERT_NO_FATAL_FAILURE(Serve(scenario, Serving::CreateWithManager));
  ASSERT_NO_FATAL_FAILURE(BringToTheMoment("m0", "m0"));
  for (const char* const node : {"c0", "m0"}) ASSERT_NO_FATAL_FAILURE(Send(node, SIGKILL));
  manager().Send(SIGKILL);
  manager().AwaitEnd(Deadline::After(seconds(10)));
  ASSERT_TRUE(manager().Start().ok());
  Leave(milliseconds(300));
  for (const char* const node : {"c0", "m0"}) ASSERT_NO_FATAL_FAILURE(Restart(node));
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
}

// Two managers race for the nodes: one serves, and the other one says whom the nodes serve.
TEST_F(RecoveryRun, OfTwoManagersOneServes) {
  Scenario scenario = Plain("plain");
  scenario.deployment.start_timeout = seconds(2);
  ASSERT_NO_FATAL_FAILURE(Serve(scenario, Serving::CreateWithManager));
  ASSERT_NO_FATAL_FAILURE(BringToTheMoment("m0", "m0"));
  ClusterConfig other = manager().config();
  ManagerProcess second(other);
  ASSERT_TRUE(second.Start().ok());
  second.AwaitEnd(Deadline::After(seconds(30)));
  EXPECT_THAT(second.output(), HasSubstr("already"));
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
}

}  // namespace
}  // namespace lamina::testing
