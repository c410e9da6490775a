// Prompts that are embedded: what the engine asks nodes for, and what clients hear, in virtual
// time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/serving.h"
#include "tests/support/virtual_engine.h"

namespace lamina::testing {
namespace embeddings_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class EmbeddingsTest : public ::testing::Test {
 protected:
  EmbeddingsTest() {
    options_.scheduler.max_model_len = 100;
    options_.scheduler.max_num_batched_tokens = 4;
    options_.scheduler.prefix_caching = true;
    options_.vocab_size = 2000;
    options_.state_size = 2;
    options_.eos_tokens = {70};
    options_.reconnects = true;
    nodes_->answer_at_once = false;
    nodes_->kv_nodes = {{kNode, 500}, {kOther, 500}};
    engine_ = std::make_unique<VirtualEngine>(options_, nodes_);
  }

  static GenerateRequest Request(bool embeds = true) {
    GenerateRequest request = GreedyRequest({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 1);
    request.sampling.embeds = embeds;
    return request;
  }
  // As a compute node answers: the value tells the position.
  static ExecutorEvent AnswerTo(const StepPlan& plan) {
    ExecutorEvent event = FakeExecutor::Answer(plan);
    event.result.sampled.clear();
    for (const Work& work : plan.work) {
      const int64_t last = work.first_position + std::ssize(work.tokens) - 1;
      if (work.sample)
        event.result.embedded.push_back({work.sequence, {static_cast<float>(last), -1}});
    }
    return event;
  }
  void Tell(const ExecutorEvent& event) {
    nodes_->on_event(event);
    engine_->Settle();
  }
  StepPlan NextSubmitted() {
    StepPlan plan = nodes_->submitted.front();
    nodes_->submitted.pop_front();
    return plan;
  }
  void AnswerAll() {
    while (!nodes_->submitted.empty()) Tell(AnswerTo(NextSubmitted()));
  }
  // The step in which the last token of the prompt is.
  StepPlan LastStep() {
    for (;;) {
      StepPlan plan = NextSubmitted();
      if (!plan.work.empty() && plan.work.back().sample) return plan;
      Tell(AnswerTo(plan));
    }
  }
  static void ExpectEmbedded(const Generated& generated) {
    EXPECT_TRUE(generated.finished);
    EXPECT_TRUE(generated.error.ok()) << generated.error;
    EXPECT_EQ(generated.reason, FinishReason::kStop);
    EXPECT_THAT(generated.tokens, IsEmpty());
    EXPECT_THAT(generated.embedding, ElementsAre(9, -1));
  }

  std::shared_ptr<FakeExecutor::Shared> nodes_ = std::make_shared<FakeExecutor::Shared>();
  EngineOptions options_;
  std::unique_ptr<VirtualEngine> engine_;
};

TEST_F(EmbeddingsTest, ComeWithTheLastTokenAndFreeTheirSlots) {
  const Collector collector;
  ASSERT_TRUE(engine_->Submit(Request(), collector.sink()).ok());
  ASSERT_THAT(nodes_->announced, ::testing::SizeIs(1));
  EXPECT_TRUE(nodes_->announced[0].sampling.embeds);
  const StepPlan last = LastStep();
  EXPECT_FALSE(collector.results()[0].finished);
  Tell(AnswerTo(last));
  ExpectEmbedded(collector.results()[0]);
  AnswerAll();
  const SchedulerStats stats = engine_->status().scheduler;
  EXPECT_EQ(stats.num_running, 0);
  EXPECT_EQ(stats.num_waiting, 0);
  for (const NodeUse& node : stats.nodes) EXPECT_EQ(node.num_sequences, 0);
}

TEST_F(EmbeddingsTest, WhatNodesMayNotSayFailsTheRequest) {
  const auto outcome = [&](bool embeds, auto change) {
    const Collector collector;
    EXPECT_TRUE(engine_->Submit(Request(embeds), collector.sink()).ok());
    const StepPlan last = LastStep();
    ExecutorEvent event = AnswerTo(last);
    change(event.result);
    Tell(event);
    AnswerAll();
    EXPECT_TRUE(collector.results()[0].finished);
    EXPECT_TRUE(collector.results()[0].embedding.empty());
    return std::string(collector.results()[0].error.message());
  };
  EXPECT_THAT(outcome(true, [](StepResult& result) { result.embedded[0].values.push_back(1); }),
              HasSubstr("an embedding of 3 values"));
  EXPECT_THAT(outcome(true, [](StepResult& result) { result.embedded[0].values.clear(); }),
              HasSubstr("an embedding of 0 values"));
  EXPECT_THAT(outcome(false, [](StepResult&) {}), HasSubstr("none of that size was asked for"));
  const auto choose = [](StepResult& result) {
    result.sampled.push_back({result.embedded[0].sequence, {.token = 5}});
    result.embedded.clear();
  };
  EXPECT_THAT(outcome(true, choose), HasSubstr("a token behind a prompt that is only embedded"));
  const SchedulerStats stats = engine_->status().scheduler;
  EXPECT_EQ(stats.num_running, 0);
}

// One of a sequence that is over, or that nobody knows, is nothing to anybody.
TEST_F(EmbeddingsTest, OfOthersAreIgnored) {
  const Collector gone, collector;
  const Result<RequestId> id = engine_->Submit(Request(), gone.sink());
  ASSERT_TRUE(id.ok());
  const StepPlan last = LastStep();
  engine_->Abort(*id);
  ExecutorEvent event = AnswerTo(last);
  event.result.embedded.push_back({SequenceId{77}, {1, 2}});
  Tell(event);
  EXPECT_EQ(gone.results()[0].reason, FinishReason::kAbort);
  EXPECT_THAT(gone.results()[0].embedding, IsEmpty());
  AnswerAll();
  ASSERT_TRUE(engine_->Submit(Request(), collector.sink()).ok());
  AnswerAll();
  ExpectEmbedded(collector.results()[0]);
}

// Of a step in which the sequence had other slots nothing counts.
TEST_F(EmbeddingsTest, AreComputedAgainWhenTheirNodeIsLost) {
  const Collector collector;
  ASSERT_TRUE(engine_->Submit(Request(), collector.sink()).ok());
  const StepPlan last = LastStep();
  ExecutorEvent lost;
  lost.kind = ExecutorEvent::Kind::kNodeLost;
  lost.node = last.work.back().route.at(0).node;
  lost.status = PeerLost("it is gone");
  Tell(lost);
  ExecutorEvent stale = AnswerTo(last);
  stale.result.embedded[0].values = {-5, -5};
  Tell(stale);
  EXPECT_FALSE(collector.results()[0].finished);
  AnswerAll();
  ExpectEmbedded(collector.results()[0]);
}

TEST_F(EmbeddingsTest, AskForOneThingAlone) {
  const Collector collector;
  GenerateRequest several = Request(), longer = Request(), scored = Request();
  several.n = 2;
  longer.max_new_tokens = 2;
  scored.sampling.num_prompt_logprobs = 0;
  for (const GenerateRequest& bad : {several, longer, scored}) {
    const Status refused = engine_->Submit(bad, collector.sink()).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << refused;
  }
}

}  // namespace embeddings_test
}  // namespace lamina::testing
