#include "manager/serving_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <optional>
#include <set>

#include "tests/support/serving.h"
#include "wire/step_times.h"

namespace lamina::testing {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr NodeId kNode{1}, kOther{2};

// Nodes that answer when the test says so. The next token of a sequence is 10 times its length, so
// that texts are easy to foresee.
class FakeExecutor : public StepExecutor {
 public:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::function<void(ExecutorEvent)> on_event;
    std::deque<StepPlan> submitted;
    std::vector<control::NewSequence> announced;
    bool answer_at_once = true;
    std::vector<KvNode> kv_nodes = {{kNode, 1000}};
    std::map<NodeId, std::string> lost;       // as nodes() says
    std::vector<ExecutorEvent> when_started;  // come with Start
    std::vector<NodeId> left;                 // guarded by mutex
  };

  explicit FakeExecutor(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  std::vector<KvNode> kv_nodes() const override { return shared_->kv_nodes; }
  void Start(std::function<void(ExecutorEvent)> on_event) override {
    shared_->on_event = std::move(on_event);
    for (const ExecutorEvent& event : shared_->when_started) shared_->on_event(event);
  }
  void Leave(NodeId node) override {
    std::lock_guard lock(shared_->mutex);
    shared_->left.push_back(node);
  }

  void Submit(const StepPlan& plan, std::span<const control::NewSequence> added) override {
    std::lock_guard lock(shared_->mutex);
    shared_->announced.insert(shared_->announced.end(), added.begin(), added.end());
    if (shared_->answer_at_once) {
      shared_->on_event(Answer(plan));
    } else {
      shared_->submitted.push_back(plan);
      shared_->changed.notify_all();
    }
  }

  TimePoint Turn(TimePoint) override { return TimePoint::max(); }

  std::vector<NodeStatus> nodes() override {
    std::vector<NodeStatus> nodes;
    for (const KvNode& node : shared_->kv_nodes) {
      NodeStatus status;
      status.id = node.id;
      status.name = "m" + std::to_string(node.id.value);
      status.role = NodeRole::kMemory;
      status.state = NodeState::kReady;
      nodes.push_back(status);
    }
    nodes.emplace_back();
    nodes.back().id = NodeId{9};
    nodes.back().name = "c0";
    nodes.back().role = NodeRole::kCompute;
    nodes.back().state = NodeState::kReady;
    for (NodeStatus& node : nodes) {
      const auto lost = shared_->lost.find(node.id);
      if (lost == shared_->lost.end()) continue;
      node.state = NodeState::kLost;
      node.detail = lost->second;
    }
    return nodes;
  }

  static ExecutorEvent Answer(const StepPlan& plan) {
    ExecutorEvent event;
    event.result.set_step(plan.step.value);
    for (const Work& work : plan.work) {
      if (!work.sample) continue;
      control::SampledToken& sampled = *event.result.add_sampled();
      sampled.set_sequence(work.sequence.value);
      sampled.set_token(static_cast<int32_t>(
          10 * (work.first_position + static_cast<int64_t>(work.tokens.size()))));
    }
    // Nodes that hardly take any time: one batch is best.
    control::NodeTimes& times = *event.result.add_times();
    times.mutable_ns()->Resize(kNumStepWorks, 1);
    return event;
  }

 private:
  std::shared_ptr<Shared> shared_;
};

class ServingEngineTest : public ::testing::Test {
 protected:
  void Create() {
    options_.scheduler.max_model_len = 100;
    if (options_.vocab_size == 0) options_.vocab_size = 2000;
    options_.eos_tokens = {70};
    engine_ = std::make_unique<ServingEngine>(options_, std::make_unique<FakeExecutor>(shared_));
  }

  StepPlan NextSubmitted() {
    std::unique_lock lock(shared_->mutex);
    EXPECT_TRUE(
        shared_->changed.wait_for(lock, seconds(10), [&] { return !shared_->submitted.empty(); }));
    StepPlan plan = shared_->submitted.front();
    shared_->submitted.pop_front();
    return plan;
  }

  Generated Await(const Collector& collector) {
    EXPECT_TRUE(collector.Wait(Deadline::After(seconds(10))));
    return collector.results()[0];
  }

  std::shared_ptr<FakeExecutor::Shared> shared_ = std::make_shared<FakeExecutor::Shared>();
  ServingEngineOptions options_;
  std::unique_ptr<ServingEngine> engine_;
};

TEST_F(ServingEngineTest, EndsAtTheEndOfSequenceToken) {
  Create();
  const Collector collector;
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2, 3, 4}, 50), collector.sink()).ok());
  const Generated got = Await(collector);
  EXPECT_THAT(got.tokens, ElementsAre(40, 50, 60, 70));
  EXPECT_EQ(got.reason, FinishReason::kStop);
  EXPECT_EQ(AwaitNoTokens(*engine_, Deadline::After(seconds(10))), "");
}

// When auto takes away a batch, those that are in it go on in another, also if nothing else
// happens.
TEST_F(ServingEngineTest, NobodyIsLeftInABatchThatIsNoMore) {
  options_.scheduler.num_batches = 3;
  options_.pipeline = {3, false};
  options_.chooses_pipeline = true;
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{90}, {90, 5, 20}, {5, 90, 20}, {5, 20, 90}}) {
    Create();
    const std::vector<Collector> collectors(lengths.size());
    for (size_t i = 0; i < lengths.size(); ++i) {
      GenerateRequest request = GreedyRequest({1, 2, 3, 4}, lengths[i]);
      request.ignore_eos = true;
      ASSERT_TRUE(engine_->Submit(request, collectors[i].sink()).ok());
    }
    for (size_t i = 0; i < lengths.size(); ++i)
      EXPECT_EQ(std::ssize(Await(collectors[i]).tokens), lengths[i]);
    EXPECT_EQ(AwaitNoTokens(*engine_, Deadline::After(seconds(10))), "");
    engine_.reset();
  }
}

TEST_F(ServingEngineTest, EndsAtMaxTokensAndIgnoresTheEndIfAsked) {
  Create();
  const Collector collector;
  GenerateRequest request = GreedyRequest({1, 2, 3, 4}, 6);
  request.ignore_eos = true;
  ASSERT_TRUE(engine_->Submit(request, collector.sink()).ok());
  const Generated got = Await(collector);
  EXPECT_THAT(got.tokens, ElementsAre(40, 50, 60, 70, 80, 90));
  EXPECT_EQ(got.reason, FinishReason::kLength);
}

TEST_F(ServingEngineTest, EndsAtAStopTokenOfTheRequest) {
  Create();
  const Collector collector;
  GenerateRequest request = GreedyRequest({1, 2, 3, 4}, 6);
  request.stop_tokens = {50};
  ASSERT_TRUE(engine_->Submit(request, collector.sink()).ok());
  EXPECT_THAT(Await(collector).tokens, ElementsAre(40, 50));
}

TEST_F(ServingEngineTest, AnnouncesContinuationsWithTheirOwnSeedsAndTheTokensBannedUntilMin) {
  Create();
  GenerateRequest request = GreedyRequest({1, 2}, 1);
  request.n = 3;
  request.prompt_index = 4;
  request.sampling.set_seed(500);
  request.stop_tokens = {8};
  const Collector collector(3);
  ASSERT_TRUE(engine_->Submit(request, collector.sink()).ok());
  ASSERT_TRUE(collector.Wait(Deadline::After(seconds(10))));
  std::lock_guard lock(shared_->mutex);
  ASSERT_EQ(shared_->announced.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(shared_->announced[i].sampling().seed(), ChoiceSeed(500, 4, i));
    EXPECT_THAT(shared_->announced[i].sampling().banned_until_min(), ElementsAre(70, 8));
    EXPECT_THAT(shared_->announced[i].tokens(), ElementsAre(1, 2));
    EXPECT_EQ(shared_->announced[i].num_prompt_tokens(), 2);
  }
}

// Its K and V may be as wrong as its logits were, though they were proven two steps before.
TEST_F(ServingEngineTest, WhatASequenceThatFailedLeftIsNotShared) {
  options_.scheduler.prefix_caching = true;
  shared_->answer_at_once = false;
  Create();
  const std::vector<Collector> collectors(3);
  const auto submit = [&](size_t which) {
    GenerateRequest request = GreedyRequest({1, 2, 3, 4, 5, 8}, 9);
    request.ignore_eos = true;
    EXPECT_TRUE(engine_->Submit(request, collectors[which].sink()).ok());
  };
  const auto next_with_work = [&] {
    StepPlan plan = NextSubmitted();
    for (; plan.work.empty(); plan = NextSubmitted()) shared_->on_event(FakeExecutor::Answer(plan));
    return plan;
  };
  submit(0);
  for (int step = 0; step < 3; ++step) shared_->on_event(FakeExecutor::Answer(next_with_work()));
  submit(1);
  StepPlan plan = next_with_work();  // the fourth of the first alone, or with the second
  if (plan.work.size() == 1) {
    shared_->on_event(FakeExecutor::Answer(plan));
    plan = next_with_work();
  }
  ASSERT_EQ(plan.work.size(), 2u);
  EXPECT_EQ(plan.work.back().first_position, 5) << "it shares what was proven";
  ExecutorEvent event = FakeExecutor::Answer(plan);
  event.result.clear_sampled();
  for (const Work& work : plan.work) {
    control::FailedSequence& failed = *event.result.add_failed();
    failed.set_sequence(work.sequence.value);
    failed.set_status(static_cast<uint32_t>(StatusCode::kInternal));
    failed.set_message("logits that are no numbers");
  }
  shared_->on_event(event);
  for (const size_t which : {0, 1})
    EXPECT_EQ(Await(collectors[which]).reason, FinishReason::kError);
  submit(2);
  EXPECT_EQ(next_with_work().work.at(0).first_position, 0);
}

TEST(ChoiceSeed, KeepsTheSeedForTheFirstChoiceOnly) {
  for (const uint64_t seed : {uint64_t{0}, uint64_t{7}, UINT64_MAX}) {
    EXPECT_EQ(ChoiceSeed(seed, 0, 0), seed);
    EXPECT_NE(ChoiceSeed(seed, 0, 1), seed);
    EXPECT_NE(ChoiceSeed(seed, 1, 0), seed);
  }
}

// Neither within a request nor between requests whose seeds are neighbours.
TEST(ChoiceSeed, NoTwoAreEqual) {
  std::set<uint64_t> seeds;
  size_t num = 0;
  for (const uint64_t near : {uint64_t{0}, uint64_t{1} << 32, UINT64_MAX - 4}) {
    for (uint64_t seed = near; seed < near + 4; ++seed) {
      for (uint64_t prompt = 0; prompt < 32; ++prompt) {
        for (uint64_t choice = 0; choice < 32; ++choice, ++num)
          seeds.insert(ChoiceSeed(seed, prompt, choice));
      }
    }
  }
  EXPECT_EQ(seeds.size(), num);
}

TEST_F(ServingEngineTest, RefusesWhatCannotBeServed) {
  options_.scheduler.max_queued = 2;
  shared_->answer_at_once = false;
  Create();
  const Collector collector;
  const auto code = [&](const GenerateRequest& request) {
    return engine_->Submit(request, collector.sink()).status().code();
  };
  EXPECT_EQ(code(GreedyRequest({}, 5)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(GreedyRequest({1}, 0)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(GreedyRequest({2000}, 5)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(GreedyRequest({-1}, 5)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(GreedyRequest({1, 2}, 99)), StatusCode::kInvalidArgument);
  GenerateRequest many = GreedyRequest({1}, 5);
  many.n = 2;
  EXPECT_EQ(code(many), StatusCode::kOk);
  NextSubmitted();  // both run: the line is empty again
  EXPECT_EQ(code(many), StatusCode::kOk);
  EXPECT_EQ(code(GreedyRequest({1}, 5)), StatusCode::kTryAgain);
}

// No node could sample a token then: that would look like an error of the node, and of the KV
// there.
TEST_F(ServingEngineTest, RefusesToBanEveryToken) {
  options_.vocab_size = 80;
  Create();
  const Collector collector;
  const auto code = [&](const GenerateRequest& request) {
    return engine_->Submit(request, collector.sink()).status().code();
  };
  GenerateRequest request = GreedyRequest({1}, 5);
  for (TokenId token = 0; token < 80; ++token) {
    if (token != 70) request.stop_tokens.push_back(token);  // which ends the text
  }
  EXPECT_EQ(code(request), StatusCode::kOk);
  request.sampling.set_min_tokens(2);
  EXPECT_EQ(code(request), StatusCode::kInvalidArgument);
  request.ignore_eos = true;
  EXPECT_EQ(code(request), StatusCode::kOk);
  request.stop_tokens.back() = request.stop_tokens.front();
  request.ignore_eos = false;
  EXPECT_EQ(code(request), StatusCode::kOk) << "one token is named twice, so another is left";
}

TEST_F(ServingEngineTest, AbortInTheMiddleOfAStepFreesTheSlotsAndReportsIt) {
  shared_->answer_at_once = false;
  Create();
  const Collector collector;
  const Result<RequestId> id = engine_->Submit(GreedyRequest({1, 2, 3}, 50), collector.sink());
  ASSERT_TRUE(id.ok());
  const StepPlan plan = NextSubmitted();
  engine_->Abort(*id);
  EXPECT_EQ(Await(collector).reason, FinishReason::kAbort);
  shared_->on_event(FakeExecutor::Answer(plan));
  const StepPlan next = NextSubmitted();
  EXPECT_TRUE(next.work.empty());
  EXPECT_THAT(next.released, ElementsAre(plan.work[0].sequence));
  shared_->on_event(FakeExecutor::Answer(next));
  EXPECT_EQ(AwaitNoTokens(*engine_, Deadline::After(seconds(10))), "");
  EXPECT_TRUE(collector.results()[0].tokens.empty()) << "no token after the abort";
}

TEST_F(ServingEngineTest, StopEndsOneContinuation) {
  shared_->answer_at_once = false;
  Create();
  GenerateRequest request = GreedyRequest({1, 2}, 3);
  request.n = 2;
  const Collector collector(2);
  const Result<RequestId> id = engine_->Submit(request, collector.sink());
  ASSERT_TRUE(id.ok());
  const StepPlan plan = NextSubmitted();
  engine_->Stop(*id, 0);
  shared_->on_event(FakeExecutor::Answer(plan));
  for (int i = 0; i < 2; ++i) shared_->on_event(FakeExecutor::Answer(NextSubmitted()));
  ASSERT_TRUE(collector.Wait(Deadline::After(seconds(10))));
  EXPECT_EQ(collector.results()[0].reason, FinishReason::kStop);
  EXPECT_EQ(collector.results()[1].reason, FinishReason::kLength);
  EXPECT_EQ(collector.results()[1].tokens.size(), 3u);
}

TEST_F(ServingEngineTest, ALostNodeFailsItsSequencesAndOnlyThose) {
  shared_->kv_nodes = {{kNode, 500}, {kOther, 500}};
  shared_->answer_at_once = false;
  Create();
  const Collector first, second;
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2}, 2), first.sink()).ok());
  StepPlan plan = NextSubmitted();
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2}, 2), second.sink()).ok());
  shared_->on_event(FakeExecutor::Answer(plan));
  plan = NextSubmitted();
  shared_->on_event(
      {ExecutorEvent::Kind::kNodeLost, {}, kNode, PeerLost("memory node m1 is lost: test")});
  EXPECT_EQ(Await(first).reason, FinishReason::kError);
  EXPECT_THAT(first.results()[0].error.message(), HasSubstr("m1"));
  shared_->on_event(FakeExecutor::Answer(plan));
  shared_->on_event(FakeExecutor::Answer(NextSubmitted()));
  EXPECT_EQ(Await(second).reason, FinishReason::kLength);
  EXPECT_TRUE(engine_->status().serving);
  EXPECT_EQ(engine_->status().nodes[0].state, NodeState::kLost);
}

// Nodes that are reconnected when the test lets them.
class ReconnectTest : public ServingEngineTest {
 protected:
  ReconnectTest() {
    shared_->answer_at_once = false;
    options_.reconnect = [this](const std::map<NodeId, std::string>& lost,
                                Deadline) -> Result<std::unique_ptr<StepExecutor>> {
      std::unique_lock lock(mutex_);
      lost_ = lost;
      changed_.notify_all();
      changed_.wait(lock, [&] { return outcome_.has_value(); });
      if (!outcome_->ok()) return *outcome_;
      return std::unique_ptr<StepExecutor>(std::make_unique<FakeExecutor>(after_));
    };
  }

  ~ReconnectTest() override { engine_.reset(); }  // it may try again until then

  void LoseCompute() {
    shared_->on_event(
        {ExecutorEvent::Kind::kComputeLost, {}, NodeId{9}, PeerLost("lost compute node c9: test")});
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, seconds(10), [&] { return !lost_.empty(); }));
    EXPECT_THAT(lost_[NodeId{9}], HasSubstr("c9"));
  }

  // Of a request.
  Collector LoseComputeInTheMiddle() {
    Create();
    Collector collector;
    EXPECT_TRUE(engine_->Submit(GreedyRequest({1, 2}, 3), collector.sink()).ok());
    NextSubmitted();
    LoseCompute();
    return collector;
  }

  void EndReconnecting(const Status& outcome) {
    std::lock_guard lock(mutex_);
    outcome_ = outcome;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<NodeId, std::string> lost_;
  std::optional<Status> outcome_;
  std::shared_ptr<FakeExecutor::Shared> after_ = std::make_shared<FakeExecutor::Shared>();
};

TEST_F(ReconnectTest, WhatRanStartsAgainWithItsTokens) {
  Create();
  const Collector first, meanwhile, aborted;
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2}, 3), first.sink()).ok());
  shared_->on_event(FakeExecutor::Answer(NextSubmitted()));
  const StepPlan in_flight = NextSubmitted();
  LoseCompute();
  EXPECT_TRUE(engine_->status().serving);
  EXPECT_EQ(engine_->status().nodes.front().state, NodeState::kReconnecting);
  shared_->on_event(FakeExecutor::Answer(in_flight));  // too late: nobody knows that step any more
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1}, 1), meanwhile.sink()).ok());
  const Result<RequestId> unwanted = engine_->Submit(GreedyRequest({1}, 1), aborted.sink());
  ASSERT_TRUE(unwanted.ok());
  engine_->Abort(*unwanted);
  EXPECT_EQ(Await(aborted).reason, FinishReason::kAbort);
  EndReconnecting(OkStatus());
  EXPECT_THAT(Await(first).tokens, ElementsAre(20, 30, 40));
  EXPECT_EQ(Await(meanwhile).reason, FinishReason::kLength);
  EXPECT_TRUE(engine_->status().serving);
  EXPECT_EQ(engine_->status().scheduler.num_running, 0);
  std::lock_guard lock(after_->mutex);
  ASSERT_FALSE(after_->announced.empty());
  EXPECT_THAT(after_->announced[0].tokens(), ElementsAre(1, 2, 20));
  EXPECT_EQ(after_->announced[0].num_prompt_tokens(), 2);
}

// Compute nodes that live do not hear each other.
TEST_F(ReconnectTest, WhereNoNodeIsLostAllAreConnectedAnew) {
  Create();
  const Collector collector;
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2}, 2), collector.sink()).ok());
  NextSubmitted();
  lost_ = {{kNode, "not asked yet"}};
  shared_->on_event({ExecutorEvent::Kind::kComputeLost,
                     {},
                     NodeId{},
                     PeerLost("compute node c0 lost compute node c9: test")});
  {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, seconds(10), [&] { return lost_.empty(); }));
  }
  EndReconnecting(OkStatus());
  EXPECT_THAT(Await(collector).tokens, ElementsAre(20, 30));
  for (const NodeStatus& node : engine_->status().nodes)
    EXPECT_EQ(node.state, NodeState::kReady) << node.name;
}

TEST_F(ReconnectTest, TheStatusSaysWhenItTakesLong) {
  options_.stands_still_after = milliseconds(20);
  Create();
  EXPECT_FALSE(engine_->status().stands_still);
  LoseCompute();
  ASSERT_TRUE(
      AwaitTrue([&] { return engine_->status().stands_still; }, Deadline::After(seconds(10))));
  EXPECT_TRUE(engine_->status().serving) << "requests wait";
  EXPECT_THAT(engine_->status().detail, HasSubstr("nodes are being connected anew for "));
  const Collector collector;
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2}, 2), collector.sink()).ok());
  EndReconnecting(OkStatus());
  EXPECT_EQ(Await(collector).reason, FinishReason::kLength);
  EXPECT_FALSE(engine_->status().stands_still);
  EXPECT_EQ(engine_->status().detail, "");
}

TEST_F(ReconnectTest, AMemoryNodeThatDidNotComeBackFailsItsSequences) {
  shared_->kv_nodes = {{kNode, 40}, {kOther, 90}};
  after_->kv_nodes = {{kNode, 40}};
  Create();
  const Collector large, small;
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2}, 60), large.sink()).ok());
  NextSubmitted();
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2}, 2), small.sink()).ok());
  LoseCompute();
  EndReconnecting(OkStatus());
  EXPECT_EQ(Await(large).reason, FinishReason::kError) << "it fits no node that is left";
  EXPECT_EQ(Await(small).reason, FinishReason::kLength);
  EXPECT_TRUE(engine_->status().serving);
}

TEST_F(ReconnectTest, EndsEverythingWithItsReasonIfItFails) {
  const Collector collector = LoseComputeInTheMiddle();
  EndReconnecting(PeerLost("no compute node is left: test"));
  EXPECT_EQ(Await(collector).reason, FinishReason::kError);
  EXPECT_THAT(collector.results()[0].error.message(), HasSubstr("no compute node is left"));
  EXPECT_FALSE(engine_->status().serving);
}

TEST_F(ReconnectTest, TheEngineMayEndMeanwhile) {
  const Collector collector = LoseComputeInTheMiddle();
  EndReconnecting(OkStatus());
  engine_.reset();
}

// A memory node that dies after it was configured and before the executor starts: it is said twice.
TEST_F(ReconnectTest, AMemoryNodeThatDiesWhileOthersAreReconnectedGetsNoRequests) {
  shared_->kv_nodes = after_->kv_nodes = {{kNode, 500}, {kOther, 500}};
  after_->lost = {{kOther, "lost memory node m2: test"}};
  after_->when_started = {
      {ExecutorEvent::Kind::kNodeLost, {}, kOther, PeerLost("lost memory node m2: test")}};
  Create();
  LoseCompute();
  EndReconnecting(OkStatus());
  for (int i = 0; i < 10; ++i) {
    const Collector collector;
    ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2}, 2), collector.sink()).ok());
    EXPECT_EQ(Await(collector).reason, FinishReason::kLength) << collector.results()[0].error;
  }
  const EngineStatus status = engine_->status();
  ASSERT_EQ(status.scheduler.nodes.size(), 1u);
  EXPECT_EQ(status.scheduler.nodes[0].id, kNode);
  EXPECT_EQ(status.nodes[1].state, NodeState::kLost);
  std::lock_guard lock(after_->mutex);
  for (const StepPlan& plan : after_->submitted) {
    for (const Work& work : plan.work) EXPECT_EQ(work.route[0].node, kNode);
  }
}

// Every node is there again when the test says so. Executors after the first are `after_`'s.
class ReturnTest : public ServingEngineTest {
 protected:
  ReturnTest() {
    options_.retry = {milliseconds(1), milliseconds(4), milliseconds(4), seconds(1)};
    options_.look = [this](const std::map<NodeId, std::string>& lost, Deadline, std::stop_token) {
      std::lock_guard lock(mutex_);
      ++num_looks_;
      changed_.notify_all();
      std::set<NodeId> found;
      for (const auto& [node, why] : lost) {
        if (there_.contains(node)) found.insert(node);
      }
      return found;
    };
    options_.reconnect = [this](const std::map<NodeId, std::string>& lost,
                                Deadline) -> Result<std::unique_ptr<StepExecutor>> {
      std::lock_guard lock(mutex_);
      left_out_.push_back(lost);
      changed_.notify_all();
      if (lost.contains(kCompute)) return PeerLost("no compute node is left: test");
      auto next = std::make_shared<FakeExecutor::Shared>();
      for (const KvNode& node : shared_->kv_nodes) {
        if (lost.contains(node.id)) next->lost.insert(*lost.find(node.id));
      }
      next->kv_nodes.clear();
      for (const KvNode& node : shared_->kv_nodes) {
        if (!lost.contains(node.id)) next->kv_nodes.push_back(node);
      }
      if (next->kv_nodes.empty()) return PeerLost("no memory node is left: test");
      executors_.push_back(next);
      return std::unique_ptr<StepExecutor>(std::make_unique<FakeExecutor>(next));
    };
  }
  ~ReturnTest() override { engine_.reset(); }

  void BringBack(NodeId node) {
    std::lock_guard lock(mutex_);
    there_.insert(node);
  }

  static ExecutorEvent Lost(ExecutorEvent::Kind kind, NodeId node) {
    return {kind, {}, node, PeerLost("lost node " + std::to_string(node.value) + ": test")};
  }

  size_t num_executors() {
    std::lock_guard lock(mutex_);
    return executors_.size();
  }
  bool AwaitLooks(int more) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, seconds(10),
                             [&, until = num_looks_ + more] { return num_looks_ >= until; });
  }

  void ExpectServes() {
    const Collector collector;
    ASSERT_TRUE(AwaitTrue(
        [&] {
          return engine_->Submit(GreedyRequest({1, 2}, 2), collector.sink()).ok();
        },
        Deadline::After(seconds(10))));
    EXPECT_EQ(Await(collector).reason, FinishReason::kLength) << collector.results()[0].error;
    EXPECT_TRUE(engine_->status().serving);
    EXPECT_TRUE(engine_->given_up().ok());
  }

  static constexpr NodeId kCompute{9};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<NodeId> there_;
  int num_looks_ = 0;
  std::vector<std::map<NodeId, std::string>> left_out_;  // by call
  std::vector<std::shared_ptr<FakeExecutor::Shared>> executors_;
};

TEST_F(ReturnTest, NobodyWaitsForNodesOnceTheEngineStops) {
  std::atomic<bool> waits = false;
  options_.reconnect = [&, stop = options_.stop.get_token()](
                           const auto&, Deadline) -> Result<std::unique_ptr<StepExecutor>> {
    waits = true;
    const bool stopped =
        AwaitTrue([&] { return stop.stop_requested(); }, Deadline::After(seconds(30)));
    return TimedOut(stopped ? "stopped" : "nobody asked to stop");
  };
  Create();
  shared_->on_event(Lost(ExecutorEvent::Kind::kComputeLost, kCompute));
  ASSERT_TRUE(AwaitTrue([&] { return waits.load(); }, Deadline::After(seconds(10))));
  const TimePoint asked = Clock::now();
  engine_.reset();
  EXPECT_LT(Clock::now() - asked, seconds(10));
}

TEST_F(ReturnTest, AMemoryNodeThatAnswersAgainGetsAnEmptyPool) {
  shared_->kv_nodes = {{kNode, 500}, {kOther, 500}};
  Create();
  shared_->on_event(Lost(ExecutorEvent::Kind::kNodeLost, kOther));
  ASSERT_TRUE(AwaitLooks(3)) << "it is looked for again and again";
  EXPECT_EQ(num_executors(), 0u) << "those that serve are left alone meanwhile";
  EXPECT_EQ(engine_->status().scheduler.nodes.size(), 1u);
  {
    std::lock_guard lock(shared_->mutex);
    EXPECT_THAT(shared_->left, ElementsAre(kOther))
        << "it has to be free of the session that it may still have";
  }
  BringBack(kOther);
  ASSERT_TRUE(AwaitTrue([&] { return engine_->status().scheduler.nodes.size() == 2; },
                        Deadline::After(seconds(10))));
  EXPECT_EQ(engine_->status().scheduler.nodes[1].used_tokens, 0);
  EXPECT_EQ(engine_->status().nodes[1].state, NodeState::kReady);
  ExpectServes();
  std::lock_guard lock(mutex_);
  ASSERT_EQ(left_out_.size(), 1u);
  EXPECT_TRUE(left_out_[0].empty());
}

// What a manager finds that was paused for long: everybody has left it.
TEST_F(ReturnTest, ServesAgainWhenAllWereLostAndAllAnswer) {
  shared_->kv_nodes = {{kNode, 500}, {kOther, 500}};
  shared_->answer_at_once = false;
  Create();
  const Collector collector;
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2}, 5), collector.sink()).ok());
  const StepPlan old = NextSubmitted();
  for (const NodeId node : {kNode, kOther})
    shared_->on_event(Lost(ExecutorEvent::Kind::kNodeLost, node));
  shared_->on_event(Lost(ExecutorEvent::Kind::kComputeLost, kCompute));
  EXPECT_EQ(Await(collector).reason, FinishReason::kError);
  ASSERT_TRUE(AwaitTrue([&] { return !engine_->status().serving; }, Deadline::After(seconds(10))));
  EXPECT_THAT(engine_->status().detail, HasSubstr("waiting for nodes to come back"));
  EXPECT_EQ(engine_->Submit(GreedyRequest({1}, 1), collector.sink()).status().code(),
            StatusCode::kPeerLost);
  for (const NodeId node : {kNode, kOther, kCompute}) BringBack(node);
  ASSERT_TRUE(AwaitTrue([&] { return engine_->status().serving; }, Deadline::After(seconds(10))));
  shared_->on_event(FakeExecutor::Answer(old));  // of an earlier generation
  ExpectServes();
  EXPECT_EQ(engine_->status().scheduler.nodes.size(), 2u);
  EXPECT_TRUE(collector.results()[0].tokens.empty());
}

TEST_F(ReturnTest, TheOnlyComputeNodeMayComeBack) {
  Create();
  shared_->on_event(Lost(ExecutorEvent::Kind::kComputeLost, kCompute));
  ASSERT_TRUE(AwaitTrue([&] { return !engine_->status().serving; }, Deadline::After(seconds(10))));
  EXPECT_THAT(engine_->status().detail, HasSubstr("no compute node is left"));
  BringBack(kCompute);
  ExpectServes();
}

TEST_F(ReturnTest, GivesUpWhenNobodyComesBackInTime) {
  options_.give_up_after = milliseconds(20);
  Create();
  shared_->on_event(Lost(ExecutorEvent::Kind::kComputeLost, kCompute));
  ASSERT_TRUE(AwaitTrue([&] { return !engine_->given_up().ok(); }, Deadline::After(seconds(10))));
  EXPECT_THAT(engine_->given_up().message(),
              HasSubstr("no compute node is left: test; no node came back that would do"));
  EXPECT_FALSE(engine_->status().serving);
  BringBack(kCompute);
  const Collector collector;
  EXPECT_EQ(engine_->Submit(GreedyRequest({1}, 1), collector.sink()).status().code(),
            StatusCode::kPeerLost);
  EXPECT_EQ(num_executors(), 0u);
}

// That one is left out of the first try, as any node that is lost while others serve.
TEST_F(ReturnTest, AnOutageInWhichANodeWasLostBeforeEndsToo) {
  shared_->kv_nodes = {{kNode, 500}, {kOther, 500}};
  shared_->lost = {{kOther, "lost memory node m2: test"}};
  Create();
  shared_->on_event(Lost(ExecutorEvent::Kind::kComputeLost, kCompute));
  const auto num_tries = [&] {
    std::lock_guard lock(mutex_);
    return left_out_.size();
  };
  ASSERT_TRUE(AwaitTrue([&] { return num_tries() >= 3; }, Deadline::After(seconds(10))));
  for (const NodeId node : {kOther, kCompute, kNode}) BringBack(node);
  ExpectServes();
}

// Each try waits as long as it may.
TEST_F(ReturnTest, GivesUpInTimeHoweverLongATryTakes) {
  options_.give_up_after = milliseconds(300);
  const auto wait = [](Deadline until) {
    AwaitTrue([&] { return until.Passed(); }, Deadline::After(seconds(30)));
  };
  const auto look = options_.look;
  options_.look = [=](const std::map<NodeId, std::string>& lost, Deadline until,
                      std::stop_token stop) {
    wait(until);
    return look(lost, until, std::move(stop));
  };
  const auto connect = options_.reconnect;
  options_.reconnect = [=](const std::map<NodeId, std::string>& lost,
                           Deadline until) -> Result<std::unique_ptr<StepExecutor>> {
    if (until.Passed()) return TimedOut("the time was over");
    return connect(lost, until);
  };
  Create();
  shared_->on_event(Lost(ExecutorEvent::Kind::kComputeLost, kCompute));
  ASSERT_TRUE(AwaitTrue([&] { return !engine_->given_up().ok(); }, Deadline::After(seconds(10))));
  EXPECT_THAT(engine_->given_up().message(),
              HasSubstr("no compute node is left: test; no node came back that would do"))
      << "what was wrong, not that the time was over";
}

// The first one too, before anybody knows that it is an outage.
TEST_F(ReturnTest, GivesUpInTimeHoweverLongTheFirstTryTakes) {
  options_.give_up_after = milliseconds(300);
  std::atomic<bool> bounded = false;
  options_.reconnect = [&](const auto&, Deadline until) -> Result<std::unique_ptr<StepExecutor>> {
    bounded = AwaitTrue([&] { return until.Passed(); }, Deadline::After(seconds(10)));
    return TimedOut("memory node m1 did not answer: test");
  };
  Create();
  const Collector collector;
  shared_->answer_at_once = false;
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2}, 2), collector.sink()).ok());
  NextSubmitted();
  shared_->on_event(Lost(ExecutorEvent::Kind::kComputeLost, kCompute));
  ASSERT_TRUE(AwaitTrue([&] { return !engine_->given_up().ok(); }, Deadline::After(seconds(30))));
  EXPECT_TRUE(bounded);
  EXPECT_THAT(engine_->given_up().message(), HasSubstr("memory node m1 did not answer: test"));
  EXPECT_EQ(Await(collector).reason, FinishReason::kError);
  EXPECT_EQ(engine_->status().scheduler.num_running, 0);
}

// Loading may take longer than the wait for nodes that do not answer.
TEST_F(ReturnTest, ANodeThatHasLoadedItsWeightsIsTakenHoweverLongThatTook) {
  options_.give_up_after = milliseconds(300);
  const auto look = options_.look;
  options_.look = [=](const std::map<NodeId, std::string>& lost, Deadline until,
                      std::stop_token stop) {
    AwaitTrue([&] { return until.Passed(); }, Deadline::After(seconds(30)));
    return look(lost, until, std::move(stop));
  };
  std::atomic<bool> had_time = false;
  const auto connect = options_.reconnect;
  options_.reconnect = [&, connect](const std::map<NodeId, std::string>& lost, Deadline until) {
    if (!lost.contains(kCompute)) had_time = !until.Passed();
    return connect(lost, until);
  };
  BringBack(kCompute);
  Create();
  shared_->on_event(Lost(ExecutorEvent::Kind::kComputeLost, kCompute));
  ASSERT_TRUE(AwaitTrue([&] { return num_executors() == 1; }, Deadline::After(seconds(10))))
      << engine_->given_up();
  ExpectServes();
  EXPECT_TRUE(had_time);
}

// The sink holds up the engine's thread as if its process had been stopped.
TEST_F(ReturnTest, APauseOfTheManagerIsNoFaultOfNodes) {
  shared_->answer_at_once = false;
  options_.step_timeout = seconds(2);
  Create();
  const Collector collector;
  std::atomic<bool> paused = false;
  const auto sink = [&, pass_on = collector.sink()](const TokenEvent& event) {
    if (!paused) AwaitTrue([] { return false; }, Deadline::After(milliseconds(2600)));
    paused = true;
    pass_on(event);
  };
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2}, 9), sink).ok());
  shared_->on_event(FakeExecutor::Answer(NextSubmitted()));
  const StepPlan late = NextSubmitted();
  ASSERT_TRUE(AwaitTrue([&] { return paused.load(); }, Deadline::After(seconds(20))));
  // Its deadline would have passed long ago.
  AwaitTrue([] { return false; }, Deadline::After(milliseconds(500)));
  shared_->on_event(FakeExecutor::Answer(late));
  NextSubmitted();
  EXPECT_EQ(num_executors(), 0u) << "nobody was connected anew";
  shared_->on_event(Lost(ExecutorEvent::Kind::kNodeLost, kNode));
  EXPECT_EQ(Await(collector).tokens.size(), 2u);
  EXPECT_THAT(collector.results()[0].error.message(),
              HasSubstr("the manager itself had not run for "));
}

TEST_F(ReturnTest, AStepThatIsNeverAnsweredStartsAgainOnNodesThatAnswer) {
  shared_->answer_at_once = false;
  options_.step_timeout = milliseconds(50);
  BringBack(kCompute);
  Create();
  const Collector collector;
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2}, 2), collector.sink()).ok());
  EXPECT_EQ(Await(collector).reason, FinishReason::kLength) << collector.results()[0].error;
  EXPECT_THAT(collector.results()[0].tokens, ElementsAre(20, 30));
  ExpectServes();
}

TEST_F(ReturnTest, ARequestWhoseStepsAreNeverAnsweredFailsAlone) {
  shared_->answer_at_once = false;
  options_.step_timeout = milliseconds(50);
  BringBack(kCompute);
  const auto connect = options_.reconnect;
  options_.reconnect = [=, this](const std::map<NodeId, std::string>& lost, Deadline until) {
    Result<std::unique_ptr<StepExecutor>> next = connect(lost, until);
    std::lock_guard lock(mutex_);
    executors_.back()->answer_at_once = executors_.size() > 1;
    return next;
  };
  Create();
  const Collector collector;
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2}, 2), collector.sink()).ok());
  EXPECT_EQ(Await(collector).reason, FinishReason::kError);
  EXPECT_THAT(collector.results()[0].error.message(), HasSubstr("was not answered within"));
  ExpectServes();
}

TEST_F(ServingEngineTest, AStepThatIsNeverAnsweredEndsAtItsDeadline) {
  shared_->answer_at_once = false;
  options_.step_timeout = milliseconds(50);
  Create();
  const Collector collector;
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2}, 2), collector.sink()).ok());
  EXPECT_EQ(Await(collector).reason, FinishReason::kError);
  EXPECT_FALSE(engine_->status().serving);
  EXPECT_EQ(engine_->Submit(GreedyRequest({1}, 1), collector.sink()).status().code(),
            StatusCode::kPeerLost);
}

}  // namespace
}  // namespace lamina::testing
