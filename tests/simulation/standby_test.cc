// Standbys that take the places of compute nodes, by a whole cluster on one thread in virtual time.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "tests/simulation/golden_streams.h"

namespace lamina::testing {
namespace standby_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

class StandbyTest : public GoldenStreams, public ::testing::WithParamInterface<Deployment> {
 protected:
  void ConnectWithStandby(Deployment deployment, Clock::duration turn = {}) {
    deployment.num_standbys = 1;
    ASSERT_NO_FATAL_FAILURE(Connect(deployment, turn));
    ASSERT_NO_FATAL_FAILURE(AwaitState("s0", NodeState::kStandby));
    ASSERT_NO_FATAL_FAILURE(RunUntilAllHave(3));
    started_ = num_started_tokens();
  }
  void AwaitState(const std::string& name, NodeState state) {
    ASSERT_TRUE(cluster_->RunUntil([&] { return StateOf(name) == state; }, seconds(60)))
        << name << " is " << NodeStateName(StateOf(name));
  }
  void Start(const std::string& name) {
    const Status started = cluster_->Start(name);
    ASSERT_TRUE(started.ok()) << started;
  }
  Clock::duration LongestGap() const {
    return std::ranges::max(streams_, {}, &Stream::longest_gap).longest_gap;
  }

  int64_t started_ = 0;
};

TEST_P(StandbyTest, TakesThePlaceOfWhoIsLost) {
  ASSERT_NO_FATAL_FAILURE(ConnectWithStandby(GetParam()));
  cluster_->Kill("c0");
  ASSERT_NO_FATAL_FAILURE(AwaitState("s0", NodeState::kReady));
  ASSERT_NO_FATAL_FAILURE(AwaitState("c0", NodeState::kLost));
  ExpectGolden();
  EXPECT_EQ(num_started_tokens(), started_) << "nothing is prefilled again";
  EXPECT_LT(LongestGap(), milliseconds(150));
}

// The two take turns, and none is ever missed.
TEST_P(StandbyTest, WhoComesBackStandsBy) {
  ASSERT_NO_FATAL_FAILURE(ConnectWithStandby(GetParam(), milliseconds(20)));
  for (int times = 0; times < 2; ++times) {
    for (const auto& [victim, other] : {std::pair("c0", "s0"), std::pair("s0", "c0")}) {
      cluster_->Kill(victim);
      ASSERT_NO_FATAL_FAILURE(AwaitState(other, NodeState::kReady));
      ASSERT_NO_FATAL_FAILURE(Start(victim));
      ASSERT_NO_FATAL_FAILURE(AwaitState(victim, NodeState::kStandby));
    }
  }
  ASSERT_FALSE(std::ranges::all_of(streams_, &Stream::over));
  ExpectGolden();
  EXPECT_EQ(num_started_tokens(), started_);
}

// It is connected when its daemon comes, and c0, which came back before it, takes its own place.
TEST_P(StandbyTest, ThatIsLostTooIsNotWaitedFor) {
  ASSERT_NO_FATAL_FAILURE(ConnectWithStandby(GetParam()));
  cluster_->Kill("s0");
  cluster_->Kill("c0");
  ASSERT_NO_FATAL_FAILURE(RunFor(milliseconds(300)));
  ASSERT_NO_FATAL_FAILURE(Start("c0"));
  ASSERT_NO_FATAL_FAILURE(AwaitState("c0", NodeState::kReady));
  ExpectGolden();
  EXPECT_EQ(num_started_tokens(), started_);
}

TEST_P(StandbyTest, ThatComesWhenNobodyIsLeftTakesThePlace) {
  ASSERT_NO_FATAL_FAILURE(ConnectWithStandby(GetParam()));
  cluster_->Kill("s0");
  cluster_->Kill("c0");
  ASSERT_NO_FATAL_FAILURE(RunFor(milliseconds(1300)));
  ASSERT_NO_FATAL_FAILURE(Start("s0"));
  ASSERT_NO_FATAL_FAILURE(AwaitState("s0", NodeState::kReady));
  ExpectGolden();
  EXPECT_EQ(num_started_tokens(), started_);
}

// Nobody knows yet that it hangs when its turn comes.
TEST_P(StandbyTest, ThatHangsCostsAMomentAndNoRequest) {
  ASSERT_NO_FATAL_FAILURE(ConnectWithStandby(GetParam()));
  cluster_->Pause("s0");
  cluster_->Kill("c0");
  ASSERT_NO_FATAL_FAILURE(RunFor(milliseconds(300)));
  ASSERT_NO_FATAL_FAILURE(Start("c0"));
  ASSERT_NO_FATAL_FAILURE(AwaitState("c0", NodeState::kReady));
  ExpectGolden();
  EXPECT_EQ(num_started_tokens(), started_);
}

std::vector<Deployment> Deployments() {
  std::vector<Deployment> all(1, Plain());
  const auto add = [&](auto change) { change(all.emplace_back(Plain())); };
  add([](Deployment& of) { of.num_compute_nodes = 2; });
  add([](Deployment& of) { of.num_compute_nodes = 2, of.pipeline = PipelineMode::kRotational; });
  add([](Deployment& of) { of.pipeline_parallel_size = 2; });
  add([](Deployment& of) { of.tensor_parallel_size = of.kv_head_parallel = 2; });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Deployments, StandbyTest, ::testing::ValuesIn(Deployments()),
                         [](const auto& of) { return of.param.Name(); });

}  // namespace standby_test
}  // namespace lamina::testing
