// Requests and steps of the engine, in virtual time.
#include "manager/engine_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/serving.h"
#include "tests/support/virtual_engine.h"

namespace lamina::testing {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EngineCoreTest : public ::testing::Test {
 protected:
  void Create() {
    options_.scheduler.max_model_len = 100;
    if (options_.vocab_size == 0) options_.vocab_size = 2000;
    options_.eos_tokens = {70};
    engine_ = std::make_unique<VirtualEngine>(options_, nodes_);
  }

  // REQUIRES: a step was submitted that is not answered.
  StepPlan NextSubmitted() {
    StepPlan plan = nodes_->submitted.front();
    nodes_->submitted.pop_front();
    return plan;
  }
  void Tell(const ExecutorEvent& event) {
    nodes_->on_event(event);
    engine_->Settle();
  }
  void Answer(const StepPlan& plan) { Tell(FakeExecutor::Answer(plan)); }
  // The result of a step in which every row failed.
  static ExecutorEvent Failed(const StepPlan& plan, FailureCause cause) {
    ExecutorEvent event = FakeExecutor::Answer(plan);
    event.result.sampled.clear();
    for (const Work& work : plan.work) {
      event.result.failed.push_back(
          {work.sequence, InternalError("logits that are no numbers"), cause});
    }
    return event;
  }

  // What became of a request that is over by now.
  static Generated Result(const Collector& collector) {
    EXPECT_TRUE(collector.results()[0].finished);
    return collector.results()[0];
  }
  void ExpectNothingHeld() {
    const EngineStatus status = engine_->status();
    EXPECT_EQ(status.scheduler.num_running + status.scheduler.num_waiting, 0);
    for (const NodeUse& node : status.scheduler.nodes) EXPECT_EQ(node.used_tokens, 0);
  }

  std::shared_ptr<FakeExecutor::Shared> nodes_ = std::make_shared<FakeExecutor::Shared>();
  EngineOptions options_;
  std::unique_ptr<VirtualEngine> engine_;
};

TEST_F(EngineCoreTest, EndsAtTheEndOfSequenceToken) {
  Create();
  const Collector collector;
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2, 3, 4}, 50), collector.sink()).ok());
  EXPECT_THAT(Result(collector).tokens, ElementsAre(40, 50, 60, 70));
  EXPECT_EQ(Result(collector).reason, FinishReason::kStop);
  ExpectNothingHeld();
}

TEST_F(EngineCoreTest, OrdersAsMuchOutsideAsObjectivesAllow) {
  const std::vector<StepTime> times = {
      {false, 1, 1, 10, 0.080}, {false, 4, 1, 10, 0.020}, {false, 0, 1, 10, 0.010}};
  options_.step_profile = std::make_shared<const StepProfile>(*StepProfile::Of(times));
  nodes_->answer_at_once = false;
  Create();
  GenerateRequest request = GreedyRequest({1, 2, 3}, 5);
  request.slo.tpot = milliseconds(100);
  const Collector first, second, third;
  ASSERT_TRUE(engine_->Submit(request, first.sink()).ok());
  StepPlan plan = NextSubmitted();
  EXPECT_EQ(plan.offload_interval, 1);
  request.slo.tpot = milliseconds(50);
  ASSERT_TRUE(engine_->Submit(request, second.sink()).ok());
  Answer(plan);
  EXPECT_EQ(NextSubmitted().offload_interval, 4) << "from the step on in which it starts";

  request.slo.tpot = milliseconds(5);
  const Status refused = engine_->Submit(request, third.sink()).status();
  EXPECT_EQ(refused.code(), StatusCode::kTryAgain);
  EXPECT_THAT(refused.message(), HasSubstr("a TPOT of 5 ms cannot be kept here"));
  EXPECT_EQ(engine_->status().scheduler.num_running, 2);
}

TEST_F(EngineCoreTest, EndsAtMaxTokensAndIgnoresTheEndIfAsked) {
  Create();
  const Collector collector;
  GenerateRequest request = GreedyRequest({1, 2, 3, 4}, 6);
  request.ignore_eos = true;
  ASSERT_TRUE(engine_->Submit(request, collector.sink()).ok());
  EXPECT_THAT(Result(collector).tokens, ElementsAre(40, 50, 60, 70, 80, 90));
  EXPECT_EQ(Result(collector).reason, FinishReason::kLength);
}

TEST_F(EngineCoreTest, EndsAtAStopTokenOfTheRequest) {
  Create();
  const Collector collector;
  GenerateRequest request = GreedyRequest({1, 2, 3, 4}, 6);
  request.stop_tokens = {50};
  ASSERT_TRUE(engine_->Submit(request, collector.sink()).ok());
  EXPECT_THAT(Result(collector).tokens, ElementsAre(40, 50));
}

// When auto takes away a batch, those that are in it go on in another, also if nothing else
// happens.
TEST_F(EngineCoreTest, NobodyIsLeftInABatchThatIsNoMore) {
  options_.scheduler.num_batches = 3;
  options_.pipeline = {3, false};
  options_.chooses_pipeline = true;
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{90}, {90, 5, 20}, {5, 90, 20}, {5, 20, 90}}) {
    nodes_->answer_at_once = false;
    Create();
    const std::vector<Collector> collectors(lengths.size());
    for (size_t i = 0; i < lengths.size(); ++i) {
      GenerateRequest request = GreedyRequest({1, 2, 3, 4}, lengths[i]);
      request.ignore_eos = true;
      ASSERT_TRUE(engine_->Submit(request, collectors[i].sink()).ok());
    }
    for (; !nodes_->submitted.empty(); engine_->Advance(microseconds(10))) Answer(NextSubmitted());
    for (size_t i = 0; i < lengths.size(); ++i)
      EXPECT_EQ(std::ssize(Result(collectors[i]).tokens), lengths[i]);
    ExpectNothingHeld();
  }
}

class ObserverOfTimes : public EngineObserver {
 public:
  void OnFirstToken(double time) override { first_tokens.push_back(time); }
  void OnNextToken(double time) override { next_tokens.push_back(time); }
  void OnFinished(const Finished& told) override { finished.push_back(told); }
  void OnStep(const Step& told) override { steps.push_back(told); }
  std::vector<double> first_tokens, next_tokens;
  std::vector<Finished> finished;
  std::vector<Step> steps;
};

// It waits 2 s for the step before, its prompt takes 3 s and each of two more tokens 0.5 s.
TEST_F(EngineCoreTest, TimesOfARequestAreThoseOfItsSteps) {
  ObserverOfTimes observer;
  options_.observer = &observer;
  nodes_->answer_at_once = false;
  Create();
  const Collector before, collector;
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2}, 1), before.sink()).ok());
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2, 3}, 3), collector.sink()).ok());
  for (const auto step :
       {milliseconds(2000), milliseconds(3000), milliseconds(500), milliseconds(500)}) {
    ASSERT_EQ(nodes_->submitted.size(), 1u) << "a batch has one step in flight";
    engine_->Advance(step);
    Answer(NextSubmitted());
  }
  EXPECT_THAT(Result(collector).tokens, ElementsAre(30, 40, 50));
  EXPECT_THAT(observer.first_tokens, ElementsAre(2, 5));
  EXPECT_THAT(observer.next_tokens, ElementsAre(0.5, 0.5));
  ASSERT_EQ(observer.finished.size(), 2u);
  const EngineObserver::Finished& times = observer.finished[1];
  EXPECT_EQ(times.queue, 2);
  EXPECT_EQ(times.prefill, 3);
  EXPECT_EQ(times.decode, 1);
  EXPECT_EQ(times.e2e, 6);
  EXPECT_EQ(times.prompt_tokens, 3);
  EXPECT_EQ(times.output_tokens, 3);
  ASSERT_EQ(observer.steps.size(), 4u);
  EXPECT_EQ(observer.steps[1].num_prefill_tokens, 3);
  EXPECT_EQ(observer.steps[2].num_decode, 1);
}

// The first one takes a step of 2 s. Of those behind it one is due meanwhile.
TEST_F(EngineCoreTest, WhoCannotBeInTimeIsDroppedOrServedLast) {
  for (const bool drops : {true, false}) {
    ObserverOfTimes observer;
    options_.observer = &observer;
    options_.queue = QueueMode::kDeadline;
    options_.drops_hopeless = drops;
    options_.slo.ttft = std::chrono::seconds(60);
    nodes_->answer_at_once = false;
    Create();
    const Collector first, late, in_time;
    ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2}, 1), first.sink()).ok());
    GenerateRequest urgent = GreedyRequest({1, 2, 3}, 1);
    urgent.slo.ttft = milliseconds(1500);
    ASSERT_TRUE(engine_->Submit(urgent, late.sink()).ok());
    engine_->Advance(milliseconds(1500));
    EXPECT_EQ(late.results()[0].finished, drops);
    ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2, 3, 4}, 1), in_time.sink()).ok());
    engine_->Advance(milliseconds(500));
    for (; !nodes_->submitted.empty(); engine_->Advance(microseconds(10))) Answer(NextSubmitted());
    EXPECT_EQ(Result(first).reason, FinishReason::kLength);
    EXPECT_EQ(Result(in_time).reason, FinishReason::kLength);
    if (drops) {
      EXPECT_EQ(Result(late).error.code(), StatusCode::kTryAgain);
      EXPECT_THAT(Result(late).error.message(), HasSubstr("was due after 1500 ms"));
    } else {
      EXPECT_EQ(Result(late).reason, FinishReason::kLength);
    }
    std::map<SloOutcome, int> outcomes;
    for (const EngineObserver::Finished& finished : observer.finished)
      ++outcomes[finished.slo.value()];
    EXPECT_EQ(outcomes[SloOutcome::kMet], 2);
    EXPECT_EQ(outcomes[drops ? SloOutcome::kDropped : SloOutcome::kMissedTtft], 1);
    ExpectNothingHeld();
  }
}

// Its first tokens came from another engine, at times that this one does not know.
TEST_F(EngineCoreTest, OfARequestThatGoesOnObjectivesAreNotJudged) {
  ObserverOfTimes observer;
  options_.observer = &observer;
  options_.slo.tpot = seconds(1);
  Create();
  GenerateRequest request = GreedyRequest({1, 2}, 3);
  for (const bool goes_on : {false, true}) {
    if (goes_on) request.told = {{.tokens = {40}}};
    const Collector collector;
    ASSERT_TRUE(engine_->Submit(request, collector.sink()).ok());
    EXPECT_EQ(Result(collector).reason, FinishReason::kLength);
  }
  ASSERT_EQ(observer.finished.size(), 2u);
  EXPECT_EQ(observer.finished[0].slo, SloOutcome::kMet);
  EXPECT_EQ(observer.finished[1].slo, std::nullopt);
}

TEST_F(EngineCoreTest, PrioritiesThatWouldHaveNoEffectAreRefused) {
  GenerateRequest request = GreedyRequest({1, 2}, 1);
  request.priority = 1;
  for (const QueueMode queue : {QueueMode::kFifo, QueueMode::kDeadline, QueueMode::kPriority}) {
    options_.queue = queue;
    Create();
    const Collector collector;
    const Status status = engine_->Submit(request, collector.sink()).status();
    EXPECT_EQ(status.code(),
              queue == QueueMode::kPriority ? StatusCode::kOk : StatusCode::kInvalidArgument);
  }
  request.priority = 0;
  request.slo.ttft = kLongestObjective + milliseconds(1);
  EXPECT_EQ(engine_->Submit(request, Collector().sink()).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(EngineCoreTest, AnnouncesContinuationsWithTheirOwnSeedsAndTheTokensBannedUntilMin) {
  Create();
  GenerateRequest request = GreedyRequest({1, 2}, 1);
  request.n = 3;
  request.prompt_index = 4;
  request.sampling.seed = 500;
  request.stop_tokens = {8};
  const Collector collector(3);
  ASSERT_TRUE(engine_->Submit(request, collector.sink()).ok());
  ASSERT_EQ(nodes_->announced.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(collector.results()[i].finished);
    EXPECT_EQ(nodes_->announced[i].sampling.seed, ChoiceSeed(500, 4, i));
    EXPECT_THAT(nodes_->announced[i].sampling.banned, ElementsAre(70, 8));
    EXPECT_THAT(nodes_->announced[i].tokens, ElementsAre(1, 2));
    EXPECT_EQ(nodes_->announced[i].num_prompt_tokens, 2);
  }
}

// Its K and V may be as wrong as its logits were, though they were proven two steps before. If they
// were, starting again mends it; if not, it fails the second time.
TEST_F(EngineCoreTest, WhatASequenceThatFailedLeftIsNotShared) {
  options_.scheduler.prefix_caching = true;
  nodes_->answer_at_once = false;
  Create();
  const std::vector<Collector> collectors(3);
  const auto submit = [&](size_t which) {
    GenerateRequest request = GreedyRequest({1, 2, 3, 4, 5, 8}, 9);
    request.ignore_eos = true;
    EXPECT_TRUE(engine_->Submit(request, collectors[which].sink()).ok());
  };
  const auto next_with_work = [&] {
    StepPlan plan = NextSubmitted();
    for (; plan.work.empty(); plan = NextSubmitted()) Answer(plan);
    return plan;
  };
  submit(0);
  for (int step = 0; step < 3; ++step) Answer(next_with_work());
  submit(1);
  Answer(next_with_work());  // the fourth of the first alone
  const StepPlan plan = next_with_work();
  ASSERT_EQ(plan.work.size(), 2u);
  EXPECT_EQ(plan.work.back().first_position, 5) << "it shares what was proven";
  Tell(Failed(plan, FailureCause::kRequest));
  const StepPlan again = next_with_work();
  ASSERT_EQ(again.work.size(), 2u);
  for (const Work& work : again.work) EXPECT_EQ(work.first_position, 0);
  EXPECT_EQ(engine_->status().num_rebuilding, 2);
  Tell(Failed(again, FailureCause::kRequest));
  for (const size_t which : {0, 1})
    EXPECT_EQ(Result(collectors[which]).reason, FinishReason::kError);
  EXPECT_EQ(engine_->status().num_rebuilding, 0);
  submit(2);
  EXPECT_EQ(next_with_work().work.at(0).first_position, 0);
}

// Three times by default; the fourth time the request may be what they are lost of.
TEST_F(EngineCoreTest, ASequenceWhoseKvIsLostTooOftenFails) {
  nodes_->answer_at_once = false;
  Create();
  const Collector collector;
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2, 3}, 50), collector.sink()).ok());
  for (int loss = 0; loss <= 3; ++loss) {
    ASSERT_FALSE(collector.results()[0].finished) << loss;
    StepPlan plan = NextSubmitted();
    for (; plan.work.empty(); plan = NextSubmitted()) Answer(plan);
    Tell(Failed(plan, FailureCause::kKvLost));
  }
  EXPECT_EQ(Result(collector).reason, FinishReason::kError);
  EXPECT_THAT(Result(collector).error.message(), HasSubstr("logits that are no numbers"));
  EXPECT_EQ(engine_->status().num_rebuilding, 0);
}

// A compute node that says the same token twice does not spoil the text.
TEST_F(EngineCoreTest, OnlyTokensThatTheSchedulerTookAreTold) {
  nodes_->answer_at_once = false;
  Create();
  const Collector collector;
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2}, 2), collector.sink()).ok());
  ExecutorEvent event = FakeExecutor::Answer(NextSubmitted());
  event.result.sampled.push_back(event.result.sampled.front());
  Tell(event);
  EXPECT_THAT(collector.results()[0].tokens, ElementsAre(20));
  Answer(NextSubmitted());
  EXPECT_THAT(Result(collector).tokens, ElementsAre(20, 30));
}

TEST_F(EngineCoreTest, RefusesWhatCannotBeServed) {
  options_.scheduler.max_queued = 2;
  nodes_->answer_at_once = false;
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
  EXPECT_EQ(code(many), StatusCode::kOk) << "both run: the line is empty again";
  EXPECT_EQ(code(GreedyRequest({1}, 5)), StatusCode::kOk);
  EXPECT_EQ(code(many), StatusCode::kTryAgain) << "only one of the two finds a place";
  EXPECT_EQ(engine_->status().scheduler.num_waiting, 1) << "and it did not keep it";
  EXPECT_EQ(code(GreedyRequest({1}, 5)), StatusCode::kOk);
  EXPECT_EQ(code(GreedyRequest({1}, 5)), StatusCode::kTryAgain);
}

// No node could sample a token then: that would look like an error of the node, and of the KV
// there.
TEST_F(EngineCoreTest, RefusesToBanEveryToken) {
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
  request.sampling.min_tokens = 2;
  EXPECT_EQ(code(request), StatusCode::kInvalidArgument);
  request.ignore_eos = true;
  EXPECT_EQ(code(request), StatusCode::kOk);
  request.stop_tokens.back() = request.stop_tokens.front();
  request.ignore_eos = false;
  EXPECT_EQ(code(request), StatusCode::kOk) << "one token is named twice, so another is left";
}

// Of [1, 2, 3, 4] the tokens 40 and 50 came from an engine that is gone.
TEST_F(EngineCoreTest, ARequestGoesOnBehindTheTokensThatItsClientHas) {
  options_.scheduler.replays_as_computed = true;
  nodes_->answer_at_once = false;
  Create();
  const Collector collector;
  GenerateRequest request = GreedyRequest({1, 2, 3, 4}, 5);
  request.ignore_eos = true;
  request.told = {{.tokens = {40, 50}}};
  ASSERT_TRUE(engine_->Submit(request, collector.sink()).ok());
  EXPECT_EQ(engine_->status().num_rebuilding, 1);
  const StepPlan prompt = NextSubmitted();
  ASSERT_EQ(prompt.work.size(), 1u);
  EXPECT_TRUE(prompt.work[0].prefill);
  EXPECT_THAT(prompt.work[0].tokens, ElementsAre(1, 2, 3, 4));
  EXPECT_FALSE(prompt.work[0].sample);
  Answer(prompt);
  const StepPlan generated = NextSubmitted();
  ASSERT_EQ(generated.work.size(), 1u);
  EXPECT_FALSE(generated.work[0].prefill);
  EXPECT_THAT(generated.work[0].tokens, ElementsAre(40, 50));
  EXPECT_TRUE(generated.work[0].sample);
  Answer(generated);
  EXPECT_EQ(engine_->status().num_rebuilding, 0);
  while (!nodes_->submitted.empty()) Answer(NextSubmitted());
  EXPECT_THAT(Result(collector).tokens, ElementsAre(60, 70, 80));
  EXPECT_EQ(Result(collector).reason, FinishReason::kLength);
  ExpectNothingHeld();
}

// What was found in the cache the first time was followed by decode rows.
TEST_F(EngineCoreTest, ARequestThatSharedAPrefixIsReplayedAsItWasComputed) {
  options_.scheduler.replays_as_computed = true;
  nodes_->answer_at_once = false;
  Create();
  const Collector collector;
  GenerateRequest request = GreedyRequest({1, 2, 3, 4}, 5);
  request.told = {{.tokens = {40}, .num_cached = 3}};
  ASSERT_TRUE(engine_->Submit(request, collector.sink()).ok());
  const StepPlan plan = NextSubmitted();
  EXPECT_TRUE(plan.work[0].prefill);
  EXPECT_THAT(plan.work[0].tokens, ElementsAre(1, 2, 3));
  Answer(plan);
  while (!nodes_->submitted.empty()) Answer(NextSubmitted());
  EXPECT_THAT(Result(collector).tokens, ElementsAre(50, 60, 70));
  EXPECT_EQ(Result(collector).reason, FinishReason::kStop);
}

// Its tokens but the last are on the memory node, where the engine that is gone left them.
TEST_F(EngineCoreTest, ARequestGoesOnWithTheKvThatIsLeft) {
  nodes_->answer_at_once = false;
  nodes_->left_kv[kNode] = {9, {{SequenceId{3}, {7, 8, 9, 10, 11, 12, 13}}}};
  Create();
  EXPECT_EQ(engine_->status().scheduler.nodes[0].used_tokens, 7);
  const Collector collector;
  GenerateRequest request = GreedyRequest({1, 2, 3, 4}, 5);
  request.ignore_eos = true;
  request.told = {{.tokens = {40, 50}, .kv = {SequenceId{3}, 9}}};
  ASSERT_TRUE(engine_->Submit(request, collector.sink()).ok());
  const StepPlan plan = NextSubmitted();
  ASSERT_EQ(plan.work.size(), 1u);
  EXPECT_FALSE(plan.work[0].prefill);
  EXPECT_THAT(plan.work[0].tokens, ElementsAre(50));
  EXPECT_THAT(plan.work[0].route[0].shared, ElementsAre(7, 8, 9, 10, 11));
  ASSERT_EQ(nodes_->announced.size(), 1u) << "compute nodes hear of it";
  EXPECT_THAT(nodes_->announced[0].tokens, ElementsAre(1, 2, 3, 4, 40, 50));
  Answer(plan);
  while (!nodes_->submitted.empty()) Answer(NextSubmitted());
  EXPECT_THAT(Result(collector).tokens, ElementsAre(60, 70, 80));
  EXPECT_EQ(engine_->status().scheduler.num_left_tokens, 5);
  ExpectNothingHeld();
}

TEST_F(EngineCoreTest, KvThatIsLeftAndNobodyAsksForIsDropped) {
  nodes_->left_kv[kNode] = {9, {{SequenceId{3}, {7, 8, 9}}}};
  options_.keep_left_for = std::chrono::seconds(5);
  Create();
  EXPECT_LE(engine_->next_turn(), engine_->now() + std::chrono::seconds(5));
  engine_->Advance(std::chrono::milliseconds(4999));
  EXPECT_EQ(engine_->status().scheduler.nodes[0].used_tokens, 3);
  engine_->Advance(std::chrono::milliseconds(1));
  ExpectNothingHeld();
}

TEST_F(EngineCoreTest, ContinuationsThatAreOverStayOver) {
  Create();
  const Collector collector(3);
  GenerateRequest request = GreedyRequest({1, 2, 3, 4}, 3);
  request.n = 3;
  request.told = {{.tokens = {40}, .over = true}, {.tokens = {40, 50}}, {}};
  const auto id = engine_->Submit(request, collector.sink());
  ASSERT_TRUE(id.ok());
  engine_->Stop(*id, 0);  // ignored, as it is over
  const std::vector<Generated> results = collector.results();
  EXPECT_TRUE(results.at(0).tokens.empty());
  EXPECT_FALSE(results.at(0).finished) << "nothing is told of it";
  EXPECT_THAT(results.at(1).tokens, ElementsAre(60));
  EXPECT_THAT(results.at(2).tokens, ElementsAre(40, 50, 60));
  EXPECT_EQ(results.at(1).reason, FinishReason::kLength);
  ExpectNothingHeld();
}

TEST_F(EngineCoreTest, RefusesWhatCannotGoOn) {
  Create();
  const auto refused = [&](std::vector<Told> told) {
    GenerateRequest request = GreedyRequest({1, 2, 3, 4}, 3);
    request.told = std::move(told);
    const auto id = engine_->Submit(request, Collector().sink());
    EXPECT_EQ(id.status().code(), StatusCode::kInvalidArgument);
    return std::string(id.status().message());
  };
  EXPECT_THAT(refused({{}, {}}), HasSubstr("of 1 continuations 2 are said to have tokens"));
  EXPECT_THAT(refused({{.tokens = {40, 50, 60}}}), HasSubstr("has all of its 3 tokens"));
  EXPECT_THAT(refused({{.tokens = {70}}}), HasSubstr("token 70, which would have ended it"));
  EXPECT_THAT(refused({{.tokens = {-1}}}), HasSubstr("outside the vocabulary"));
  EXPECT_THAT(refused({{.tokens = {40}, .num_cached = 4}}), HasSubstr("4 of 4 prompt tokens"));
  EXPECT_THAT(refused({{.over = true}}), HasSubstr("all continuations are over"));
  EXPECT_EQ(engine_->status().num_rebuilding, 0);
  ExpectNothingHeld();
}

TEST_F(EngineCoreTest, AbortInTheMiddleOfAStepFreesTheSlotsAndReportsIt) {
  nodes_->answer_at_once = false;
  Create();
  const Collector collector;
  const auto id = engine_->Submit(GreedyRequest({1, 2, 3}, 50), collector.sink());
  ASSERT_TRUE(id.ok());
  const StepPlan plan = NextSubmitted();
  engine_->Abort(*id);
  EXPECT_EQ(Result(collector).reason, FinishReason::kAbort);
  Answer(plan);
  const StepPlan next = NextSubmitted();
  EXPECT_TRUE(next.work.empty());
  EXPECT_THAT(next.released, ElementsAre(plan.work[0].sequence));
  Answer(next);
  ExpectNothingHeld();
  EXPECT_TRUE(collector.results()[0].tokens.empty()) << "no token after the abort";
}

TEST_F(EngineCoreTest, StopEndsOneContinuation) {
  nodes_->answer_at_once = false;
  Create();
  GenerateRequest request = GreedyRequest({1, 2}, 3);
  request.n = 2;
  const Collector collector(2);
  const auto id = engine_->Submit(request, collector.sink());
  ASSERT_TRUE(id.ok());
  engine_->Stop(*id, 0);
  engine_->Stop(*id, 2);  // there is none
  for (int i = 0; i < 3; ++i) Answer(NextSubmitted());
  EXPECT_EQ(collector.results()[0].reason, FinishReason::kStop);
  EXPECT_EQ(collector.results()[1].reason, FinishReason::kLength);
  EXPECT_EQ(collector.results()[1].tokens.size(), 3u);
}

TEST_F(EngineCoreTest, AStepThatIsNeverAnsweredEndsAtItsDeadline) {
  nodes_->answer_at_once = false;
  options_.step_timeout = milliseconds(900);
  Create();
  engine_->Advance(seconds(3));
  const Collector collector;
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2}, 2), collector.sink()).ok());
  const TimePoint deadline = engine_->now() + milliseconds(900);
  engine_->Advance(milliseconds(900) - nanoseconds(1));
  EXPECT_FALSE(collector.results()[0].finished);
  EXPECT_EQ(engine_->next_turn(), deadline);
  engine_->Advance(nanoseconds(1));
  EXPECT_EQ(Result(collector).reason, FinishReason::kError);
  EXPECT_THAT(Result(collector).error.message(),
              HasSubstr("was not answered within 0 s: compute node c0 hangs"));
  EXPECT_FALSE(engine_->status().serving) << "there is nobody who would connect nodes anew";
  EXPECT_EQ(engine_->Submit(GreedyRequest({1}, 1), collector.sink()).status().code(),
            StatusCode::kPeerLost);
}

TEST_F(EngineCoreTest, AStepThatIsAnsweredInTimeIsNot) {
  nodes_->answer_at_once = false;
  options_.step_timeout = seconds(10);
  Create();
  const Collector collector;
  ASSERT_TRUE(engine_->Submit(GreedyRequest({1, 2}, 5), collector.sink()).ok());
  for (int step = 0; step < 5; ++step) {
    engine_->Advance(seconds(10) - nanoseconds(1));
    Answer(NextSubmitted());
  }
  EXPECT_EQ(Result(collector).reason, FinishReason::kLength);
  EXPECT_TRUE(engine_->core().given_up().ok());
}

TEST_F(EngineCoreTest, TheExecutorGetsItsTurnsWhenItAsksForThem) {
  Create();
  nodes_->next_turn = engine_->now() + milliseconds(300);
  engine_->Settle();
  nodes_->turns.clear();
  engine_->Advance(milliseconds(300) - nanoseconds(1));
  const TimePoint due = nodes_->next_turn;
  EXPECT_EQ(engine_->next_turn(), due);
  nodes_->turns.clear();
  nodes_->next_turn = due + milliseconds(300);
  engine_->Advance(nanoseconds(1));
  ASSERT_FALSE(nodes_->turns.empty());
  EXPECT_EQ(nodes_->turns.front(), due);
  EXPECT_EQ(engine_->next_turn(), due + milliseconds(300));
}

}  // namespace
}  // namespace lamina::testing
