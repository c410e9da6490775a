// How the manager connects its nodes: on one thread, in virtual time, over connections that this
// test plays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "manager/cluster_executor.h"
#include "manager/find_nodes.h"
#include "wire/codec.h"

namespace lamina {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr nanoseconds kMoment{1};

// A node's end of its connection.
struct PlayedNode {
  bool reachable = true;
  Clock::duration greeting_takes{};
  int num_connections = 0;  // that are there now
  std::vector<MessageType> told;
  ControlConnection::Callbacks manager;  // what the manager does with what comes

  void Say(MessageType type, std::string message) const {
    manager.on_frame({FrameType(type), std::move(message)});
  }
  void SayConfigured(Status status = {}) const {
    Say(MessageType::kConfigured,
        Encode(Configured{.status = std::move(status), .capacity_tokens = 1000}));
  }
};

class PlayedConnection : public ControlConnection {
 public:
  explicit PlayedConnection(PlayedNode& node) : node_(node) { ++node_.num_connections; }
  ~PlayedConnection() override { --node_.num_connections; }
  void Start(Callbacks callbacks) override { node_.manager = std::move(callbacks); }
  void LimitFrames(size_t) override {}
  void Abort() override {}
  Status Send(uint16_t type, std::string) override {
    node_.told.push_back(static_cast<MessageType>(type));
    return OkStatus();
  }
  void Close(Deadline) override {}
  const std::string& peer_hello() const override { return name_; }
  const std::string& peer_address() const override { return name_; }

 private:
  PlayedNode& node_;
  const std::string name_ = "a played node";
};

class PlayedConnecting : public ControlConnecting {
 public:
  PlayedConnecting(PlayedNode& node, const TimePoint& now, TimePoint latest)
      : node_(node), now_(now), latest_(latest) {}
  std::optional<Result<std::unique_ptr<ControlConnection>>> Poll() override {
    if (node_.reachable && now_ >= began_ + node_.greeting_takes)
      return std::unique_ptr<ControlConnection>(std::make_unique<PlayedConnection>(node_));
    if (now_ >= latest_) return TimedOut("connection refused: test");
    return std::nullopt;
  }

 private:
  PlayedNode& node_;
  const TimePoint& now_;
  const TimePoint began_ = now_;
  const TimePoint latest_;
};

class ClusterConnect : public ::testing::Test {
 protected:
  ClusterConnect() {
    for (const char* name : {"c0", "c1", "m0"}) {
      NodeConfig node;
      node.name = name;
      node.role = name[0] == 'c' ? NodeRole::kCompute : NodeRole::kMemory;
      node.port = 1 + static_cast<int>(config_.nodes.size());
      config_.nodes.push_back(node);
      nodes_.try_emplace(ClusterConfig::Address(node));
    }
    config_.transport = TransportKind::kTcp;
    config_.start_timeout = seconds(60);
    config_.peer_timeout = seconds(10);
    model_.num_layers = model_.num_heads = model_.num_kv_heads = 2;
    model_.head_dim = 8;
  }

  PlayedNode& node(size_t index) { return nodes_.at(ClusterConfig::Address(config_.nodes[index])); }
  PlayedNode& c0() { return node(0); }
  PlayedNode& c1() { return node(1); }
  PlayedNode& m0() { return node(2); }

  ConnectMeans Means() {
    return {.progress = [this](const std::string& line) { lines_.push_back(line); },
            .connect = [this](const std::string& address, const ControlOptions&, TimePoint latest,
                              std::function<void()>) -> std::unique_ptr<ControlConnecting> {
              return std::make_unique<PlayedConnecting>(nodes_.at(address), now_, latest);
            },
            .end = EndAtOnce,
            .on_change = [this] { changed_ = true; }};
  }
  void Begin() {
    procedure_.emplace(ClusterExecutor::ConnectByTurns(turns_, config_, model_, Means()));
    procedure_->Start();
    Settle();
  }
  void BeginWithout(const std::map<NodeId, std::string>& lost, TimePoint until) {
    procedure_.emplace(
        ClusterExecutor::ConnectWithoutByTurns(turns_, config_, model_, {lost}, until, Means()));
    procedure_->Start();
    Settle();
  }
  // What follows on what nodes have said.
  void Settle() {
    while (changed_ && !procedure_->done()) {
      changed_ = false;
      turns_.Turn(now_);
    }
  }
  // Time passes, with a turn whenever one is due.
  void Advance(Clock::duration by) {
    const TimePoint end = now_ + by;
    while (!procedure_->done() && turns_.next() <= end) {
      now_ = std::max(now_, turns_.next());
      turns_.Turn(now_);
    }
    now_ = end;
    Settle();
  }
  bool done() const { return procedure_->done(); }
  // Each node says that it is configured, and compute nodes that they have joined: all are
  // connected.
  ClusterExecutor::Connected AnswerAll() {
    m0().SayConfigured();
    for (int answers = 0; answers < 2; ++answers) {  // configured, then joined
      Settle();
      for (PlayedNode* compute : {&c0(), &c1()}) compute->SayConfigured();
    }
    Settle();
    if (!done()) return InternalError("it waits for something else");
    return procedure_->TakeResult();
  }

  ClusterConfig config_;
  ModelConfig model_;
  TimePoint now_{std::chrono::hours(24)};
  std::map<std::string, PlayedNode> nodes_;
  std::vector<std::string> lines_;
  bool changed_ = false;
  Turns turns_{now_};
  std::optional<Procedure<ClusterExecutor::Connected>> procedure_;
};

TEST_F(ClusterConnect, MemoryNodesAreConfiguredFirstThenComputeNodesAtTheSameTime) {
  Begin();
  EXPECT_THAT(m0().told, ElementsAre(MessageType::kConfigureMemory));
  EXPECT_THAT(c0().told, IsEmpty()) << "it is to be told where memory nodes listen";
  m0().SayConfigured();
  Settle();
  for (PlayedNode* compute : {&c0(), &c1()})
    EXPECT_THAT(compute->told, ElementsAre(MessageType::kConfigureCompute));
  c1().SayConfigured();
  Settle();
  EXPECT_THAT(c1().told, ElementsAre(MessageType::kConfigureCompute));
  c0().SayConfigured();
  Settle();
  for (PlayedNode* compute : {&c0(), &c1()}) {
    EXPECT_THAT(compute->told,
                ElementsAre(MessageType::kConfigureCompute, MessageType::kConnectCompute));
    compute->SayConfigured();
  }
  Settle();
  ASSERT_TRUE(done());
  ClusterExecutor::Connected connected = procedure_->TakeResult();
  ASSERT_TRUE(connected.ok()) << connected.status();
  ASSERT_EQ((*connected)->kv_nodes().size(), 1u);
  EXPECT_EQ((*connected)->kv_nodes()[0].capacity_tokens, 1000);
}

TEST_F(ClusterConnect, ANodeThatIsNotThereIsWaitedForUntilTheEnd) {
  c0().reachable = false;
  Begin();
  Advance(seconds(2) - kMoment);
  EXPECT_THAT(lines_, IsEmpty()) << "it may just be starting";
  Advance(kMoment);
  EXPECT_THAT(lines_, ElementsAre("waiting up to 58 s for compute node c0: connection refused: "
                                  "test"));
  Advance(seconds(58) - kMoment);
  EXPECT_FALSE(done());
  Advance(kMoment);
  ASSERT_TRUE(done());
  EXPECT_THAT(procedure_->TakeResult().status().message(),
              HasSubstr("compute node c0: connection refused: test; is its daemon running?"));
  EXPECT_EQ(m0().num_connections, 0);
}

TEST_F(ClusterConnect, AMemoryNodeThatIsSilentEndsItWithTheTime) {
  Begin();
  Advance(seconds(60) - kMoment);
  EXPECT_FALSE(done());
  EXPECT_EQ(turns_.next(), now_ + kMoment);
  Advance(kMoment);
  ASSERT_TRUE(done());
  EXPECT_THAT(procedure_->TakeResult().status().message(),
              HasSubstr("did not answer Configure within 60 s"));
  for (const auto& [address, node] : nodes_) EXPECT_EQ(node.num_connections, 0) << address;
}

TEST_F(ClusterConnect, ANodeThatServesAnotherManagerIsAskedAgainForAWhile) {
  Begin();
  for (int asked = 1; asked <= 60; ++asked) {
    ASSERT_EQ(m0().told.size(), static_cast<size_t>(asked));
    m0().SayConfigured(TryAgain("it serves another manager: test"));
    Settle();
    Advance(milliseconds(200) - kMoment);
    ASSERT_EQ(m0().told.size(), static_cast<size_t>(asked)) << "not before 200 ms are over";
    Advance(kMoment);
  }
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("waiting up to 12 s, in case it is gone")));
  EXPECT_FALSE(done());
  m0().SayConfigured(TryAgain("it serves another manager: test"));
  Settle();
  ASSERT_TRUE(done());
  EXPECT_THAT(procedure_->TakeResult().status().message(),
              HasSubstr("stop that manager first: a node serves one at a time"));
}

TEST_F(ClusterConnect, WeightsMayTakeAsLongAsSomeCome) {
  Begin();
  m0().SayConfigured();
  c1().SayConfigured();
  Settle();
  for (int i = 1; i <= 5; ++i) {
    Advance(seconds(120) - kMoment);
    c0().Say(MessageType::kWeightsProgress,
             Encode(WeightsProgress{.loaded_bytes = i * 1'000'000, .total_bytes = 9'000'000}));
    Settle();
  }
  EXPECT_FALSE(done());
  EXPECT_EQ(lines_.back(), "compute node c0: loaded 5.0 of 9.0 MB of weights");
  Advance(seconds(120) - kMoment);
  EXPECT_FALSE(done());
  Advance(kMoment);
  ASSERT_TRUE(done());
  EXPECT_EQ(procedure_->TakeResult().status().code(), StatusCode::kTimeout);
}

TEST_F(ClusterConnect, WithoutANodeThatIsLostMeanwhileTheOthersAreConnectedAnew) {
  BeginWithout({}, TimePoint::max());
  m0().SayConfigured();
  c0().SayConfigured();
  Settle();
  c1().manager.on_lost(PeerLost("compute node c1: test"));
  Settle();
  EXPECT_FALSE(done());
  EXPECT_EQ(c1().num_connections, 0);
  EXPECT_THAT(m0().told, ElementsAre(MessageType::kConfigureMemory, MessageType::kConfigureMemory));
  m0().SayConfigured();
  Settle();
  c0().SayConfigured();
  Settle();
  ASSERT_TRUE(done()) << "one compute node has nobody to join";
  const ClusterExecutor::Connected connected = procedure_->TakeResult();
  ASSERT_TRUE(connected.ok()) << connected.status();
  EXPECT_EQ((*connected)->nodes()[1].state, NodeState::kLost);
}

TEST_F(ClusterConnect, TimeThatAnotherNodeTookCountsAgainstNobodyElse) {
  c0().reachable = false;
  m0().greeting_takes = milliseconds(100);
  BeginWithout({}, TimePoint::max());
  Advance(seconds(5) - milliseconds(50));
  c0().reachable = true;
  Advance(milliseconds(100));
  EXPECT_EQ(m0().num_connections, 0) << "it is still being greeted";
  Advance(milliseconds(100));
  changed_ = true;  // as its thread would tell
  Settle();
  EXPECT_EQ(m0().num_connections, 1);
  const ClusterExecutor::Connected connected = AnswerAll();
  ASSERT_TRUE(connected.ok()) << connected.status();
  for (const NodeStatus& one : (*connected)->nodes()) EXPECT_EQ(one.state, NodeState::kReady);
}

TEST_F(ClusterConnect, CountersAreAskedForOnceASecondAndMoreOftenWhileStepsAreSubmitted) {
  Begin();
  const ClusterExecutor::Connected connected = AnswerAll();
  ASSERT_TRUE(connected.ok()) << connected.status();
  ClusterExecutor& executor = **connected;
  executor.Start([](const ExecutorEvent&) {});
  TimePoint next = now_;
  // Turns until `by` has passed, each when it is due; returns how often the node was asked.
  const auto num_asked = [&](Clock::duration by) {
    m0().told.clear();
    const TimePoint end = now_ + by;
    for (; next <= end; next = executor.Turn(now_)) now_ = std::max(now_, next);
    now_ = end;
    return std::ranges::count(m0().told, MessageType::kStatsRequest);
  };
  EXPECT_EQ(num_asked(Clock::duration::zero()), 1) << "at first";
  for (int look = 0; look < 100; ++look) executor.nodes();
  EXPECT_EQ(num_asked(seconds(60)), 60);
  StepPlan plan;
  plan.step = StepId{1};
  executor.Submit(plan, {});
  next = executor.Turn(now_);
  EXPECT_EQ(next, now_ + milliseconds(100));
  EXPECT_EQ(num_asked(milliseconds(100)), 1) << "soon after what may have changed them";
  EXPECT_EQ(num_asked(seconds(1) - kMoment), 0) << "it is idle again";
  EXPECT_EQ(num_asked(kMoment), 1);
}

TEST_F(ClusterConnect, IdsOfNodesMayHaveGaps) {
  constexpr NodeId kC0{2}, kC1{7}, kM0{90};
  config_.nodes[0].id = kC0;
  config_.nodes[1].id = kC1;
  config_.nodes[2].id = kM0;
  BeginWithout({{kC0, "test"}}, TimePoint::max());
  m0().SayConfigured();
  Settle();
  EXPECT_EQ(c0().num_connections, 0);
  c1().SayConfigured();
  Settle();
  ASSERT_TRUE(done());
  const ClusterExecutor::Connected connected = procedure_->TakeResult();
  ASSERT_TRUE(connected.ok()) << connected.status();
  ClusterExecutor& executor = **connected;
  ASSERT_EQ(executor.kv_nodes().size(), 1u);
  EXPECT_EQ(executor.kv_nodes()[0].id, kM0);
  EXPECT_EQ(executor.KvNodeOf(kC1), kC1);
  const std::vector<NodeStatus> nodes = executor.nodes();
  ASSERT_EQ(nodes.size(), 3u);
  EXPECT_EQ(nodes[0].id, kC0);
  EXPECT_EQ(nodes[0].state, NodeState::kLost);
  EXPECT_EQ(nodes[1].state, NodeState::kReady);
  StepPlan plan;
  plan.step = StepId{1};
  plan.work.resize(1);
  plan.work[0].route = {{kM0, 0, {0}}};
  executor.Submit(plan, {});
  EXPECT_EQ(c1().told.back(), MessageType::kComputeOrder);
  EXPECT_EQ(m0().told.back(), MessageType::kMemoryOrder);
  std::vector<ExecutorEvent> events;
  executor.Start([&](ExecutorEvent event) { events.push_back(std::move(event)); });
  m0().manager.on_lost(PeerLost("memory node m0: test"));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].node, kM0);
}

TEST_F(ClusterConnect, OneThatIsGivenUpLeavesNothingBehind) {
  Begin();
  m0().SayConfigured();
  Settle();
  EXPECT_EQ(c0().num_connections, 1);
  procedure_.reset();
  for (const auto& [address, node] : nodes_) EXPECT_EQ(node.num_connections, 0) << address;
}

TEST_F(ClusterConnect, LostNodesAreLookedForAllAtTheSameTime) {
  std::optional<Procedure<FoundNodes>> look;
  const std::map<NodeId, std::string> lost = {{NodeId{1}, "test"}, {NodeId{3}, "test"}};
  look.emplace(FindNodes(turns_, config_, model_, lost, TimePoint::max(), Means()));
  look->Start();
  EXPECT_THAT(c0().told, ElementsAre(MessageType::kConfigureCompute));
  EXPECT_THAT(c1().told, IsEmpty());
  EXPECT_THAT(m0().told, ElementsAre(MessageType::kConfigureMemory));
  c0().SayConfigured();
  turns_.Turn(now_);
  EXPECT_FALSE(look->done());
  EXPECT_EQ(turns_.next(), now_ + config_.peer_timeout);
  turns_.Turn(turns_.next());
  ASSERT_TRUE(look->done());
  EXPECT_THAT(look->TakeResult(), ElementsAre(Pair(NodeId{1}, "c0")));
}

}  // namespace
}  // namespace lamina
