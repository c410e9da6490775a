// Nodes that are lost while others are connected anew, and again as soon as they are back.
#include <gtest/gtest.h>

#include "tests/e2e/recovery_run.h"

namespace lamina::testing {
namespace {

class DoubleLoss : public RecoveryRun, public ::testing::WithParamInterface<TransportKind> {
 protected:
  void ServeStreams(int num_compute_nodes, size_t num_streams = kStreams) {
    Scenario scenario = Plain("double_loss");
    scenario.deployment.transport = GetParam();
    scenario.deployment.num_compute_nodes = num_compute_nodes;
    scenario.deployment.num_memory_nodes = 3;
    if (num_compute_nodes > 1) scenario.deployment.pipeline = PipelineMode::kFixed;
    scenario.requests.resize(num_streams);
    ASSERT_NO_FATAL_FAILURE(Serve(scenario));
  }
  // Sequences are spread evenly: a third of what decodes is on one of three memory nodes.
  void ExpectOneMemoryNodesTokensAgain(int64_t started) {
    EXPECT_GT(num_started_tokens(), started) << "what was on m0 has to be prefilled again";
    EXPECT_LT(num_started_tokens() - started, kStreams * kTokens / 2) << "and nothing else";
  }
};

// c1 does not run, so that the others wait for it when m0 is killed.
TEST_P(DoubleLoss, AMemoryNodeIsKilledWhileSeveralComputeNodesAreConnectedAnew) {
  ASSERT_NO_FATAL_FAILURE(ServeStreams(3));
  ASSERT_NO_FATAL_FAILURE(BringToTheMoment("", "m0"));
  const int64_t started = num_started_tokens();
  ASSERT_NO_FATAL_FAILURE(Send("c1", SIGSTOP));
  ASSERT_NO_FATAL_FAILURE(Send("c2", SIGKILL));
  ASSERT_TRUE(AwaitState("m0", NodeState::kReconnecting));
  ASSERT_NO_FATAL_FAILURE(Send("m0", SIGKILL));
  Leave(milliseconds(500));
  EXPECT_EQ(Node("m1").state, NodeState::kReconnecting) << "it was to be connected meanwhile";
  ASSERT_NO_FATAL_FAILURE(Send("c1", SIGCONT));
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
  EXPECT_EQ(Node("m0").state, NodeState::kLost);
  EXPECT_EQ(Node("c1").state, NodeState::kReady);
  EXPECT_EQ(Node("c2").state, NodeState::kLost);
  ExpectOneMemoryNodesTokensAgain(started);
}

// The daemon is there again and does not run yet, so that a try to connect it is under way.
TEST_P(DoubleLoss, AMemoryNodeIsKilledWhileTheOnlyComputeNodeIsConnectedAnew) {
  ASSERT_NO_FATAL_FAILURE(ServeStreams(1));
  ASSERT_NO_FATAL_FAILURE(BringToTheMoment("", "m0"));
  const int64_t started = num_started_tokens();
  ASSERT_NO_FATAL_FAILURE(Send("c0", SIGKILL));
  ASSERT_NO_FATAL_FAILURE(Restart("c0"));
  ASSERT_NO_FATAL_FAILURE(Send("c0", SIGSTOP));
  ASSERT_TRUE(AwaitState("m0", NodeState::kReconnecting));
  ASSERT_NO_FATAL_FAILURE(Send("m0", SIGKILL));
  ASSERT_NO_FATAL_FAILURE(Send("c0", SIGCONT));
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
  EXPECT_EQ(Node("m0").state, NodeState::kLost);
  EXPECT_EQ(Node("c0").state, NodeState::kReady);
  ExpectOneMemoryNodesTokensAgain(started);
}

TEST_P(DoubleLoss, TheOnlyComputeNodeIsKilledAgainRightAfterItCameBack) {
  ASSERT_NO_FATAL_FAILURE(ServeStreams(1));
  ASSERT_NO_FATAL_FAILURE(BringToTheMoment("", "m0"));
  const int64_t started = num_started_tokens();
  const auto serves = [&] { return engine().status().serving; };
  for (int times = 0; times < 3; ++times) {
    ASSERT_NO_FATAL_FAILURE(Send("c0", SIGKILL));
    ASSERT_TRUE(AwaitTrue([&] { return !serves(); }, Deadline::After(seconds(30))));
    ASSERT_NO_FATAL_FAILURE(Restart("c0"));
    ASSERT_TRUE(AwaitTrue(serves, Deadline::After(seconds(30))));
  }
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
  EXPECT_EQ(num_started_tokens(), started) << "nothing is prefilled again";
}

// It listens, and is being connected or about to be.
TEST_P(DoubleLoss, TheOnlyComputeNodeIsKilledAgainBeforeItIsConnected) {
  ASSERT_NO_FATAL_FAILURE(ServeStreams(1));
  ASSERT_NO_FATAL_FAILURE(BringToTheMoment("", "m0"));
  const int64_t started = num_started_tokens();
  ASSERT_NO_FATAL_FAILURE(Send("c0", SIGKILL));
  for (const int wait_ms : {0, 50, 400}) {
    ASSERT_NO_FATAL_FAILURE(Restart("c0"));
    Leave(milliseconds(wait_ms));
    ASSERT_NO_FATAL_FAILURE(Send("c0", SIGKILL));
  }
  ASSERT_NO_FATAL_FAILURE(Restart("c0"));
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
  EXPECT_EQ(num_started_tokens(), started) << "nothing is prefilled again";
}

// Every time that it is back it has streams to compute at once.
TEST_P(DoubleLoss, OneOfSeveralComputeNodesIsKilledAgainRightAfterItCameBack) {
  ASSERT_NO_FATAL_FAILURE(ServeStreams(2));
  for (int times = 0; times < 2; ++times) {
    ASSERT_NO_FATAL_FAILURE(BringToTheMoment("", "m0"));
    const int64_t started = num_started_tokens();
    ASSERT_NO_FATAL_FAILURE(Send("c1", SIGKILL));
    ASSERT_NO_FATAL_FAILURE(Restart("c1"));
    ASSERT_NO_FATAL_FAILURE(ExpectWhole());
    EXPECT_EQ(num_started_tokens(), started) << "nothing is prefilled again";
    ASSERT_TRUE(AwaitState("c1", NodeState::kReady));
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, DoubleLoss, ::testing::ValuesIn(Transports()),
                         [](const auto& of) { return std::string(TransportKindName(of.param)); });

}  // namespace
}  // namespace lamina::testing
