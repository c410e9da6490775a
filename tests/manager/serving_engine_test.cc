// The engine's thread, and how it gives turns to what waits for nodes. What is decided:
// engine_core_test.cc and engine_outage_test.cc.
#include "manager/serving_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <optional>
#include <set>

#include "tests/support/fake_executor.h"
#include "tests/support/serving.h"

namespace lamina::testing {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

// Nodes that are reconnected when the test lets them.
class ReconnectTest : public ServingEngineTest {
 protected:
  ReconnectTest() {
    shared_->answer_at_once = false;
    options_.reconnect = [this](Turns& turns, KnownNodes known, TimePoint, OnChange on_change) {
      std::lock_guard lock(mutex_);
      lost_ = std::move(known.lost);
      on_change_ = std::move(on_change);
      changed_.notify_all();
      return Wait(turns);
    };
  }

  ~ReconnectTest() override { engine_.reset(); }  // it may try again until then

  Procedure<Reconnected> Wait(Turns& turns) {
    while (true) {
      const std::optional<Status> outcome = Outcome();
      if (outcome && !outcome->ok()) co_return *outcome;
      if (outcome) co_return std::unique_ptr<StepExecutor>(std::make_unique<FakeExecutor>(after_));
      co_await turns.Next(TimePoint::max());
    }
  }
  std::optional<Status> Outcome() {
    std::lock_guard lock(mutex_);
    return outcome_;
  }

  void LoseCompute() {
    shared_->on_event(
        {ExecutorEvent::Kind::kComputeLost, {}, kCompute, PeerLost("lost compute node c9: test")});
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, seconds(10), [&] { return !lost_.empty(); }));
    EXPECT_THAT(lost_[kCompute], HasSubstr("c9"));
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
    on_change_();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<NodeId, std::string> lost_;
  std::optional<Status> outcome_;
  OnChange on_change_;
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
  EXPECT_THAT(after_->announced[0].tokens, ElementsAre(1, 2, 20));
  EXPECT_EQ(after_->announced[0].num_prompt_tokens, 2);
}

TEST_F(ReconnectTest, RequestsWaitIfItFailsUntilItDoesNot) {
  options_.retry = {milliseconds(1), milliseconds(4), milliseconds(4), seconds(1)};
  const Collector collector = LoseComputeInTheMiddle(), meanwhile;
  EndReconnecting(PeerLost("no compute node is left: test"));
  ASSERT_TRUE(AwaitTrue([&] { return !engine_->status().serving; }, Deadline::After(seconds(10))));
  EXPECT_FALSE(engine_->status().given_up);
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1}, 1), meanwhile.sink()).ok());
  EXPECT_FALSE(collector.results()[0].finished);
  EndReconnecting(OkStatus());
  EXPECT_THAT(Await(collector).tokens, ElementsAre(20, 30, 40));
  EXPECT_EQ(Await(meanwhile).reason, FinishReason::kLength);
  EXPECT_TRUE(engine_->status().serving);
}

TEST_F(ReconnectTest, EndsEverythingWithItsReasonIfItFailsForTooLong) {
  options_.give_up_after = milliseconds(200);
  const Collector collector = LoseComputeInTheMiddle();
  EndReconnecting(PeerLost("no compute node is left: test"));
  EXPECT_EQ(Await(collector).reason, FinishReason::kError);
  EXPECT_THAT(collector.results()[0].error.message(), HasSubstr("no compute node is left"));
  EXPECT_FALSE(engine_->status().serving);
  EXPECT_TRUE(engine_->status().given_up);
  EXPECT_EQ(engine_->Submit(GreedyRequest({1}, 1), collector.sink()).status().code(),
            StatusCode::kPeerLost);
}

TEST_F(ReconnectTest, TheEngineMayEndMeanwhile) {
  const Collector collector = LoseComputeInTheMiddle();
  engine_.reset();
}

// Its last words to a node that hangs take a moment.
class SlowToEnd : public FakeExecutor {
 public:
  SlowToEnd(std::shared_ptr<Shared> shared, std::function<void()> wait)
      : FakeExecutor(std::move(shared)), wait_(std::move(wait)) {}
  ~SlowToEnd() override { wait_(); }

 private:
  const std::function<void()> wait_;
};

TEST_F(ReconnectTest, RequestsAreAnsweredWhileTheExecutorOfBeforeEnds) {
  std::atomic<bool> ends = false, may_end = false;
  options_.scheduler.max_model_len = 100;
  options_.vocab_size = 2000;
  engine_ = std::make_unique<ServingEngine>(options_, std::make_unique<SlowToEnd>(shared_, [&] {
                                              ends = true;
                                              AwaitTrue([&] { return may_end.load(); },
                                                        Deadline::After(seconds(30)));
                                            }));
  shared_->on_event(FakeExecutor::Lost(ExecutorEvent::Kind::kComputeLost, kCompute));
  ASSERT_TRUE(AwaitTrue([&] { return ends.load(); }, Deadline::After(seconds(10))));
  const Collector aborted, served;
  const Result<RequestId> unwanted = engine_->Submit(GreedyRequest({1}, 1), aborted.sink());
  ASSERT_TRUE(unwanted.ok());
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1}, 1), served.sink()).ok());
  engine_->Abort(*unwanted);
  EXPECT_EQ(Await(aborted).reason, FinishReason::kAbort) << "told by the engine's thread";
  EXPECT_FALSE(may_end);
  {
    std::lock_guard lock(mutex_);
    EXPECT_TRUE(lost_.empty()) << "its sessions keep nodes busy";
    outcome_ = OkStatus();
  }
  may_end = true;
  EXPECT_EQ(Await(served).reason, FinishReason::kLength);
}

// Every node is there again when the test says so. Executors after the first are `after_`'s.
class ReturnTest : public ServingEngineTest {
 protected:
  ReturnTest() {
    options_.retry = {milliseconds(1), milliseconds(4), milliseconds(4), seconds(1)};
    options_.look = [this](Turns&, std::map<NodeId, std::string> lost, TimePoint, OnChange) {
      return Look(std::move(lost));
    };
    options_.reconnect = [this](Turns&, KnownNodes known, TimePoint, OnChange) {
      return ConnectWithout(std::move(known.lost));
    };
  }
  ~ReturnTest() override { engine_.reset(); }

  Procedure<FoundNodes> Look(std::map<NodeId, std::string> lost) {
    std::lock_guard lock(mutex_);
    ++num_looks_;
    changed_.notify_all();
    FoundNodes found;
    for (const auto& [node, why] : lost) {
      if (there_.contains(node)) found.emplace(node, "it");
    }
    co_return found;
  }

  Procedure<Reconnected> ConnectWithout(std::map<NodeId, std::string> lost) {
    std::lock_guard lock(mutex_);
    left_out_.push_back(lost);
    changed_.notify_all();
    if (lost.contains(kCompute)) co_return PeerLost("no compute node is left: test");
    auto next = std::make_shared<FakeExecutor::Shared>();
    next->kv_nodes.clear();
    for (const KvNode& node : shared_->kv_nodes) {
      if (lost.contains(node.id)) {
        next->lost.insert(*lost.find(node.id));
      } else {
        next->kv_nodes.push_back(node);
      }
    }
    if (next->kv_nodes.empty()) co_return PeerLost("no memory node is left: test");
    executors_.push_back(next);
    co_return std::unique_ptr<StepExecutor>(std::make_unique<FakeExecutor>(next));
  }

  Procedure<FoundNodes> LookOnceOver(Turns& turns, std::map<NodeId, std::string> lost,
                                     TimePoint until) {
    while (turns.now() < until) co_await turns.Next(until);
    const FoundNodes found = co_await Look(std::move(lost));
    co_return found;
  }

  void BringBack(NodeId node) {
    std::lock_guard lock(mutex_);
    there_.insert(node);
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

  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<NodeId> there_;
  int num_looks_ = 0;
  std::vector<std::map<NodeId, std::string>> left_out_;  // by call
  std::vector<std::shared_ptr<FakeExecutor::Shared>> executors_;
};

// Until the test is over.
Procedure<Reconnected> WaitForEver(Turns& turns) {
  while (true) co_await turns.Next(TimePoint::max());
}

TEST_F(ReturnTest, NobodyWaitsForNodesOnceTheEngineStops) {
  std::atomic<bool> waits = false;
  options_.reconnect = [&](Turns& turns, const auto&, TimePoint, const OnChange&) {
    waits = true;
    return WaitForEver(turns);
  };
  Create();
  shared_->on_event(FakeExecutor::Lost(ExecutorEvent::Kind::kComputeLost, kCompute));
  ASSERT_TRUE(AwaitTrue([&] { return waits.load(); }, Deadline::After(seconds(10))));
  const TimePoint asked = Clock::now();
  engine_.reset();
  EXPECT_LT(Clock::now() - asked, seconds(10));
}

TEST_F(ReturnTest, AMemoryNodeThatAnswersAgainGetsAnEmptyPool) {
  shared_->kv_nodes = {{kNode, 500}, {kOther, 500}};
  Create();
  shared_->on_event(FakeExecutor::Lost(ExecutorEvent::Kind::kNodeLost, kOther));
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
    shared_->on_event(FakeExecutor::Lost(ExecutorEvent::Kind::kNodeLost, node));
  shared_->on_event(FakeExecutor::Lost(ExecutorEvent::Kind::kComputeLost, kCompute));
  ASSERT_TRUE(AwaitTrue([&] { return !engine_->status().serving; }, Deadline::After(seconds(10))));
  EXPECT_THAT(engine_->status().detail, HasSubstr("waiting for nodes to come back"));
  EXPECT_EQ(engine_->status().scheduler.num_parked, 1);
  EXPECT_FALSE(collector.results()[0].finished);
  for (const NodeId node : {kNode, kOther, kCompute}) BringBack(node);
  ASSERT_TRUE(AwaitTrue([&] { return engine_->status().serving; }, Deadline::After(seconds(10))));
  shared_->on_event(FakeExecutor::Answer(old));  // of an earlier generation
  ExpectServes();
  EXPECT_EQ(engine_->status().scheduler.nodes.size(), 2u);
  EXPECT_THAT(Await(collector).tokens, ElementsAre(20, 30, 40, 50, 60));
}

// Loading may take longer than the wait for nodes that do not answer.
TEST_F(ReturnTest, ANodeThatHasLoadedItsWeightsIsTakenHoweverLongThatTook) {
  options_.give_up_after = milliseconds(300);
  options_.look = [this](Turns& turns, std::map<NodeId, std::string> lost, TimePoint until,
                         OnChange) { return LookOnceOver(turns, std::move(lost), until); };
  std::atomic<bool> had_time = false;
  options_.reconnect = [&](Turns& turns, KnownNodes known, TimePoint until, OnChange) {
    if (!known.lost.contains(kCompute)) had_time = turns.now() < until;
    return ConnectWithout(std::move(known.lost));
  };
  BringBack(kCompute);
  Create();
  shared_->on_event(FakeExecutor::Lost(ExecutorEvent::Kind::kComputeLost, kCompute));
  ASSERT_TRUE(AwaitTrue([&] { return num_executors() == 1; }, Deadline::After(seconds(10))))
      << engine_->given_up();
  ExpectServes();
  EXPECT_TRUE(had_time);
}

}  // namespace
}  // namespace lamina::testing
