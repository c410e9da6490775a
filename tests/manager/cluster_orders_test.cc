// What a cluster executor sends to its nodes and makes of what they say, against nodes that this
// test plays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "manager/cluster_executor.h"
#include "tests/support/serving.h"
#include "wire/codec.h"

namespace lamina::testing {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

// Says that it is configured, unless it is silent, and that every step is done.
class PlayedNode {
 public:
  PlayedNode() {
    listener_ = *ControlListener::Create(
        "127.0.0.1:0", {.hello = "a played node"},
        [this](std::unique_ptr<ControlConnection> connection) {
          connection->Start({.on_frame = [this](const ControlFrame& frame) { Take(frame); },
                             .on_lost = [](const Status&) {}});
          std::lock_guard lock(mutex_);
          connection_ = std::move(connection);
        });
  }
  ~PlayedNode() {
    listener_.reset();
    connection_.reset();
  }

  // The manager sees its connection end.
  void Close() {
    std::unique_ptr<ControlConnection> closed;
    std::lock_guard lock(mutex_);
    closed = std::move(connection_);
  }

  NodeConfig Config(const std::string& name, NodeRole role) const {
    NodeConfig config;
    config.name = name;
    config.role = role;
    config.port = std::stoi(listener_->address().substr(listener_->address().rfind(':') + 1));
    return config;
  }

  std::atomic<int> num_stats_requests{0};
  std::atomic<int> num_rows{-1};       // of the last order
  std::atomic<uint32_t> lost_peer{0};  // of the last LosePeer
  StepResult result;                   // of every step
  std::atomic<int> silent_to{0};       // messages of that type; 0: to none

 private:
  void Take(const ControlFrame& frame) {
    if (frame.type == silent_to) return;
    switch (static_cast<MessageType>(frame.type)) {
      case MessageType::kConfigureMemory: return Begin<ConfigureMemory>(frame);
      case MessageType::kConfigureCompute: return Begin<ConfigureCompute>(frame);
      case MessageType::kConnectCompute: return Begin<ConnectCompute>(frame);
      case MessageType::kComputeOrder: {
        const Result<ComputeOrder> order = Decode<ComputeOrder>(frame.payload);
        ASSERT_TRUE(order.ok()) << order.status();
        num_rows = static_cast<int>(order->work.size());
        result.epoch = order->epoch;
        result.step = order->step;
        Send(MessageType::kStepResult, Encode(result));
        return;
      }
      case MessageType::kLosePeer: {
        const Result<LosePeer> lost = Decode<LosePeer>(frame.payload);
        ASSERT_TRUE(lost.ok()) << lost.status();
        EXPECT_EQ(lost->epoch, result.epoch);
        EXPECT_FALSE(lost->message.empty());
        lost_peer = lost->node.value;
        return;
      }
      case MessageType::kStatsRequest: ++num_stats_requests; return;
      default: return;
    }
  }

  template <typename Request>
  void Begin(const ControlFrame& frame) {
    const Result<Request> request = Decode<Request>(frame.payload);
    ASSERT_TRUE(request.ok()) << request.status();
    result.epoch = request->epoch;
    Send(MessageType::kConfigured, Encode(Configured{.capacity_tokens = 1 << 20}));
  }

  void Send(MessageType type, std::string message) {
    AwaitTrue([this] { return std::lock_guard(mutex_), connection_ != nullptr; },
              Deadline::After(seconds(10)));
    std::lock_guard lock(mutex_);
    EXPECT_TRUE(connection_->Send(FrameType(type), std::move(message)).ok());
  }

  std::mutex mutex_;
  std::unique_ptr<ControlConnection> connection_;
  std::unique_ptr<ControlListener> listener_;
};

class ClusterOrders : public ::testing::Test {
 protected:
  ModelConfig Describe() {
    config_.nodes = {c0_.Config("c0", NodeRole::kCompute), c1_.Config("c1", NodeRole::kCompute),
                     m0_.Config("m0", NodeRole::kMemory)};
    config_.transport = TransportKind::kTcp;
    ModelConfig model;
    model.num_layers = model.num_heads = model.num_kv_heads = 2;
    model.head_dim = 8;
    return model;
  }
  Result<std::unique_ptr<ClusterExecutor>> ConnectWithin(Clock::duration time) {
    const ModelConfig model = Describe();
    return ClusterExecutor::ConnectWithout(config_, model, {}, Deadline::After(time), {});
  }
  void Connect() {
    const ModelConfig model = Describe();
    Result<std::unique_ptr<ClusterExecutor>> executor =
        ClusterExecutor::Connect(config_, model, {});
    ASSERT_TRUE(executor.ok()) << executor.status();
    executor_ = std::move(*executor);
    executor_->Start([this](ExecutorEvent event) { events_.Push(std::move(event)); });
  }
  void TearDown() override { executor_.reset(); }

  std::optional<ExecutorEvent> NextEvent() {
    std::optional<ExecutorEvent> event;
    AwaitTrue([&] { return (event = events_.TryPop()).has_value(); }, Deadline::After(seconds(10)));
    return event;
  }

  // As the engine does, once it has heard of it.
  void LeaveTheNodeThatIsLost() {
    std::optional<ExecutorEvent> event = NextEvent();
    while (event && event->kind == ExecutorEvent::Kind::kStepDone) event = NextEvent();
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->kind, ExecutorEvent::Kind::kNodeLost);
    EXPECT_EQ(event->node, NodeId{3});
    executor_->Leave(event->node);
  }

  static void ExpectToldOfLoss(const PlayedNode& node) {
    EXPECT_TRUE(AwaitTrue([&] { return node.lost_peer == 3; }, Deadline::After(seconds(10))));
  }

  static StepPlan OneRow(uint64_t step) {
    StepPlan plan;
    plan.step = StepId{step};
    plan.work.resize(1);
    plan.work[0].sequence = SequenceId{1};
    plan.work[0].route = {{NodeId{3}, 0, {0}}};
    return plan;
  }

  PlayedNode c0_, c1_, m0_;
  ClusterConfig config_;
  Inbox<ExecutorEvent> events_;
  std::unique_ptr<ClusterExecutor> executor_;
};

// The order would be larger than a frame, which ends neither the connection nor the other
// sequences.
TEST_F(ClusterOrders, WhatIsTooLargeForAnOrderFailsAtOnce) {
  c1_.silent_to = FrameType(MessageType::kComputeOrder);  // only one rank answers
  Connect();
  StepPlan plan = OneRow(1);
  Work start;
  start.sequence = SequenceId{2};
  start.first = true;
  start.route = {{NodeId{3}, 0, {1}, std::vector<TokenSlot>(14'000'000, 0xffffffff)}};  // 70 MB
  plan.work.push_back(start);
  const std::vector<NewSequence> added(1);
  executor_->Submit(plan, added);
  const std::optional<ExecutorEvent> event = NextEvent();
  ASSERT_TRUE(event.has_value()) << "nobody will ever answer this step";
  EXPECT_EQ(event->kind, ExecutorEvent::Kind::kStepDone);
  ASSERT_EQ(event->result.failed.size(), 1u);
  EXPECT_EQ(event->result.failed[0].sequence, SequenceId{2});
  EXPECT_THAT(event->result.failed[0].why.message(),
              HasSubstr("more than they take: 67108864 bytes"));
  EXPECT_EQ(event->result.failed[0].cause, FailureCause::kRequest);
  EXPECT_TRUE(AwaitTrue([this] { return c0_.num_rows == 1; }, Deadline::After(seconds(10))))
      << "the other sequence goes on";

  executor_->Submit(OneRow(2), {});
  const std::optional<ExecutorEvent> next = NextEvent();
  ASSERT_TRUE(next.has_value());
  EXPECT_TRUE(next->result.failed.empty());
}

TEST_F(ClusterOrders, ComputeNodesAreToldOfAMemoryNodeWhoseConnectionEnded) {
  Connect();
  m0_.Close();
  LeaveTheNodeThatIsLost();
  ExpectToldOfLoss(c0_);
  ExpectToldOfLoss(c1_);
}

TEST_F(ClusterOrders, ComputeNodesAreToldOfAMemoryNodeThatOneOfThemHasLost) {
  Connect();
  c1_.result.lost_nodes = {{NodeId{3}, "m0: no answer"}};
  executor_->Submit(OneRow(1), {});
  LeaveTheNodeThatIsLost();
  ExpectToldOfLoss(c0_);
}

TEST_F(ClusterOrders, MemoryNodesAreAskedForTheirCountersByTheClockAndNotByEachLook) {
  Connect();
  const auto num_asked = [&](int expected) {
    AwaitTrue([&] { return m0_.num_stats_requests >= expected; }, Deadline::After(seconds(10)));
    return m0_.num_stats_requests.load();
  };
  TimePoint next = executor_->Turn(TimePoint(seconds(100)));
  EXPECT_EQ(num_asked(1), 1);
  EXPECT_EQ(executor_->Turn(next - std::chrono::nanoseconds(1)), next) << "it is not due";
  for (int i = 0; i < 100; ++i) executor_->nodes();
  for (int turn = 2; turn <= 4; ++turn) {
    next = executor_->Turn(next);
    // What was asked too often would have come before.
    EXPECT_EQ(num_asked(turn), turn);
  }
}

// A node lives, so its connection is not lost, and never answers.
class ClusterTime : public ClusterOrders, public ::testing::WithParamInterface<MessageType> {};

INSTANTIATE_TEST_SUITE_P(Silent, ClusterTime,
                         ::testing::Values(MessageType::kConfigureMemory,
                                           MessageType::kConfigureCompute,
                                           MessageType::kConnectCompute));

TEST_P(ClusterTime, ATryToConnectEndsWithTheTimeThatItHas) {
  config_.peer_timeout = config_.start_timeout = std::chrono::minutes(5);
  (GetParam() == MessageType::kConfigureMemory ? m0_ : c0_).silent_to = FrameType(GetParam());
  const TimePoint begin = Clock::now();
  const Result<std::unique_ptr<ClusterExecutor>> executor = ConnectWithin(milliseconds(300));
  EXPECT_FALSE(executor.ok());
  EXPECT_THAT(executor.status().message(), HasSubstr("did not answer Configure"));
  EXPECT_LT(SecondsSince(begin), 60);
}

// Both live, and say of each other that they do not.
class ClusterCut : public ClusterOrders, public ::testing::WithParamInterface<bool> {};

INSTANTIATE_TEST_SUITE_P(SharesTheModel, ClusterCut, ::testing::Bool());

TEST_P(ClusterCut, OfTwoThatDoNotHearEachOtherOneIsLostUnlessTheyShareTheModel) {
  config_.pipeline_parallel_size = GetParam() ? 2 : 1;
  Connect();
  c1_.result.lost_nodes = {{NodeId{1}, "c0: no sign of life"}};
  executor_->Submit(OneRow(1), {});
  std::optional<ExecutorEvent> event = NextEvent();
  // What c0 says, before or after.
  while (event && event->kind == ExecutorEvent::Kind::kStepDone) event = NextEvent();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->kind, ExecutorEvent::Kind::kComputeLost);
  EXPECT_EQ(event->node, GetParam() ? NodeId{} : NodeId{1});
  EXPECT_EQ(event->status.message(), "compute node c1 lost compute node c0: no sign of life");
}

}  // namespace
}  // namespace lamina::testing
