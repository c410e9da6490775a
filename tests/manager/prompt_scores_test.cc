// Log-probabilities of prompts: what the engine asks nodes for, and what clients hear, in virtual
// time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/support/serving.h"
#include "tests/support/virtual_engine.h"

namespace lamina::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class PromptScoresTest : public ::testing::Test {
 protected:
  PromptScoresTest() {
    options_.scheduler.max_model_len = 100;
    options_.scheduler.max_num_batched_tokens = 4;
    options_.scheduler.prefix_caching = true;
    options_.vocab_size = 2000;
    options_.eos_tokens = {70};
    options_.reconnects = true;
    nodes_->answer_at_once = false;
    nodes_->kv_nodes = {{kNode, 500}, {kOther, 500}};
  }

  void Create() { engine_ = std::make_unique<VirtualEngine>(options_, nodes_); }

  static GenerateRequest Request(int n = 1, std::vector<Told> told = {}) {
    GenerateRequest request = GreedyRequest({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 3);
    request.sampling.num_prompt_logprobs = 0;
    request.n = n;
    request.told = std::move(told);
    return request;
  }
  // What was announced of a sequence last.
  const NewSequence& Announced(SequenceId sequence) const {
    const auto found = std::find_if(nodes_->announced.rbegin(), nodes_->announced.rend(),
                                    [&](const auto& one) { return one.sequence == sequence; });
    return *found;
  }
  // As a compute node answers: the log-probability of a token tells its position, and how often the
  // position was computed.
  ExecutorEvent AnswerTo(const StepPlan& plan) {
    ExecutorEvent event = FakeExecutor::Answer(plan);
    for (const Work& work : plan.work) {
      const NewSequence& sequence = Announced(work.sequence);
      if (sequence.sampling.num_prompt_logprobs < 0) continue;
      ScoredTokens scored{work.sequence, work.first_position + 1};
      for (int64_t i = 1; i <= std::ssize(work.tokens); ++i) {
        const int64_t position = work.first_position + i;
        if (position >= sequence.num_prompt_tokens) break;
        TokenScore& token = scored.tokens.emplace_back();
        token.token = sequence.tokens[static_cast<size_t>(position)];
        token.logprob = static_cast<float>(-position) - 0.001f * static_cast<float>(++computed_);
      }
      if (!scored.tokens.empty()) event.result.scored.push_back(scored);
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
  StepPlan NextWithWork() {
    StepPlan plan = NextSubmitted();
    for (; plan.work.empty(); plan = NextSubmitted()) Tell(FakeExecutor::Answer(plan));
    return plan;
  }
  // Answers everything; returns how many prompt tokens were computed.
  int64_t AnswerAll() {
    int64_t tokens = 0;
    while (!nodes_->submitted.empty()) {
      const StepPlan plan = NextSubmitted();
      for (const Work& work : plan.work) {
        const int64_t of_prompt = Announced(work.sequence).num_prompt_tokens - work.first_position;
        tokens += std::clamp<int64_t>(of_prompt, 0, std::ssize(work.tokens));
      }
      Tell(AnswerTo(plan));
    }
    return tokens;
  }
  static std::vector<TokenId> TokensOf(const Generated& generated) {
    std::vector<TokenId> tokens;
    for (const TokenScore& scored : generated.scored) tokens.push_back(scored.token);
    return tokens;
  }
  static void ExpectAllScored(const Generated& generated) {
    EXPECT_THAT(TokensOf(generated), ElementsAre(2, 3, 4, 5, 6, 7, 8, 9, 10));
    for (size_t i = 0; i < generated.scored.size(); ++i)
      EXPECT_EQ(std::trunc(generated.scored[i].logprob), -static_cast<float>(i + 1));
    EXPECT_TRUE(generated.finished);
    EXPECT_TRUE(generated.error.ok()) << generated.error;
    EXPECT_THAT(generated.tokens, SizeIs(3));
  }

  std::shared_ptr<FakeExecutor::Shared> nodes_ = std::make_shared<FakeExecutor::Shared>();
  EngineOptions options_;
  std::unique_ptr<VirtualEngine> engine_;
  int computed_ = 0;
};

TEST_F(PromptScoresTest, ComeInOrderChunkByChunkBeforeTheFirstToken) {
  Create();
  const Collector collector;
  ASSERT_TRUE(engine_->Submit(Request(), collector.sink()).ok());
  Tell(AnswerTo(NextSubmitted()));
  EXPECT_THAT(TokensOf(collector.results()[0]), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(collector.results()[0].tokens, IsEmpty());
  AnswerAll();
  ExpectAllScored(collector.results()[0]);
}

TEST_F(PromptScoresTest, ARequestThatDoesNotAskHasNone) {
  Create();
  const Collector collector;
  GenerateRequest request = Request();
  request.sampling.num_prompt_logprobs = -1;
  ASSERT_TRUE(engine_->Submit(request, collector.sink()).ok());
  ExecutorEvent event = AnswerTo(NextSubmitted());
  event.result.scored.push_back({SequenceId{1}, 1, {{.token = 2}}});
  Tell(event);
  AnswerAll();
  EXPECT_THAT(collector.results()[0].scored, IsEmpty());
}

TEST_F(PromptScoresTest, APromptThatIsScoredIsComputedAndLeftToOthers) {
  Create();
  GenerateRequest plain = Request();
  plain.sampling.num_prompt_logprobs = -1;
  const auto computed = [&](const GenerateRequest& request) {
    const Collector collector;
    EXPECT_TRUE(engine_->Submit(request, collector.sink()).ok());
    const int64_t tokens = AnswerAll();
    if (request.sampling.num_prompt_logprobs >= 0) ExpectAllScored(collector.results()[0]);
    return tokens;
  };
  EXPECT_EQ(computed(Request()), 10);
  EXPECT_EQ(computed(plain), 1) << "it finds what the scored one has computed";
  EXPECT_EQ(computed(Request()), 10);
  EXPECT_EQ(computed(Request()), 10);
}

TEST_F(PromptScoresTest, OneOfSeveralAnswersHasThem) {
  Create();
  const Collector collector(3);
  ASSERT_TRUE(engine_->Submit(Request(3), collector.sink()).ok());
  EXPECT_EQ(AnswerAll(), 10 + 1 + 1) << "the others share the prompt";
  ExpectAllScored(collector.results()[0]);
  for (const size_t other : {1, 2}) {
    EXPECT_THAT(collector.results()[other].scored, IsEmpty());
    EXPECT_THAT(collector.results()[other].tokens, SizeIs(3));
  }
}

// Of what is computed a second time nobody hears.
TEST_F(PromptScoresTest, ANodeThatIsLostWhileItPrefillsRepeatsNothing) {
  Create();
  const Collector collector;
  ASSERT_TRUE(engine_->Submit(Request(), collector.sink()).ok());
  StepPlan plan = NextSubmitted();
  const NodeId first = plan.work.at(0).route.at(0).node;
  Tell(AnswerTo(plan));
  ASSERT_THAT(collector.results()[0].scored, SizeIs(4));
  const float before = collector.results()[0].scored[0].logprob;
  plan = NextSubmitted();
  Tell(FakeExecutor::Lost(ExecutorEvent::Kind::kNodeLost, first));
  Tell(AnswerTo(plan));
  EXPECT_THAT(collector.results()[0].scored, SizeIs(4)) << "that step counts no more";
  plan = NextWithWork();
  EXPECT_EQ(plan.work.at(0).first_position, 0);
  EXPECT_NE(plan.work.at(0).route.at(0).node, first);
  Tell(AnswerTo(plan));
  EXPECT_THAT(collector.results()[0].scored, SizeIs(4)) << "these are known";
  AnswerAll();
  ExpectAllScored(collector.results()[0]);
  EXPECT_EQ(collector.results()[0].scored[0].logprob, before);
}

TEST_F(PromptScoresTest, AChunkThatFailsIsScoredWhenItIsComputedAgain) {
  Create();
  const Collector collector;
  ASSERT_TRUE(engine_->Submit(Request(), collector.sink()).ok());
  Tell(AnswerTo(NextSubmitted()));
  const StepPlan plan = NextSubmitted();
  ExecutorEvent failed = FakeExecutor::Answer(plan);
  failed.result.failed.push_back(
      {plan.work.at(0).sequence, InternalError("test"), FailureCause::kKvLost});
  Tell(failed);
  EXPECT_THAT(collector.results()[0].scored, SizeIs(4));
  AnswerAll();
  ExpectAllScored(collector.results()[0]);
}

TEST_F(PromptScoresTest, OnceAllAreToldTheNodesAreNotAskedAgain) {
  Create();
  const Collector collector;
  ASSERT_TRUE(engine_->Submit(Request(), collector.sink()).ok());
  for (int i = 0; i < 3; ++i) Tell(AnswerTo(NextSubmitted()));
  ASSERT_THAT(collector.results()[0].tokens, SizeIs(1));
  const StepPlan plan = NextSubmitted();
  Tell(FakeExecutor::Lost(ExecutorEvent::Kind::kNodeLost, plan.work.at(0).route.at(0).node));
  Tell(FakeExecutor::Answer(plan));
  AnswerAll();
  EXPECT_EQ(Announced(plan.work.at(0).sequence).sampling.num_prompt_logprobs, -1);
  ExpectAllScored(collector.results()[0]);
}

// As benchmarks whose prompts are not computed, or a node that has none of it.
TEST_F(PromptScoresTest, ATokenWithoutThemFailsTheRequest) {
  Create();
  const Collector collector, other;
  ASSERT_TRUE(engine_->Submit(Request(), collector.sink()).ok());
  while (!nodes_->submitted.empty()) Tell(FakeExecutor::Answer(NextSubmitted()));
  EXPECT_THAT(collector.results()[0].tokens, IsEmpty());
  EXPECT_THAT(collector.results()[0].error.message(), HasSubstr("how likely"));

  // Other tokens than the prompt's are as good as none.
  ASSERT_TRUE(engine_->Submit(Request(), other.sink()).ok());
  while (!nodes_->submitted.empty()) {
    ExecutorEvent event = AnswerTo(NextSubmitted());
    for (ScoredTokens& scored : event.result.scored) scored.tokens.front().token = 1999;
    Tell(event);
  }
  EXPECT_THAT(other.results()[0].scored, IsEmpty());
  EXPECT_THAT(other.results()[0].error.message(), HasSubstr("how likely"));
}

TEST_F(PromptScoresTest, AClientThatHasSomeHearsTheRest) {
  Create();
  const Collector some, all, decodes;
  ASSERT_TRUE(engine_->Submit(Request(1, {{.num_scored = 6}}), some.sink()).ok());
  AnswerAll();
  EXPECT_THAT(TokensOf(some.results()[0]), ElementsAre(8, 9, 10));
  EXPECT_THAT(some.results()[0].tokens, SizeIs(3));
  ASSERT_TRUE(engine_->Submit(Request(1, {{.num_scored = 9}}), all.sink()).ok());
  AnswerAll();
  EXPECT_THAT(all.results()[0].scored, IsEmpty());
  EXPECT_THAT(all.results()[0].tokens, SizeIs(3));
  ASSERT_TRUE(
      engine_->Submit(Request(1, {{.tokens = {100}, .num_scored = 9}}), decodes.sink()).ok());
  AnswerAll();
  EXPECT_THAT(decodes.results()[0].scored, IsEmpty());
  EXPECT_THAT(decodes.results()[0].tokens, SizeIs(2));
}

TEST_F(PromptScoresTest, WhatCannotHaveBeenToldIsRefused) {
  Create();
  const Collector collector;
  const auto code = [&](const GenerateRequest& request) {
    return engine_->Submit(request, collector.sink()).status().code();
  };
  EXPECT_EQ(code(Request(1, {{.num_scored = 10}})), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Request(1, {{.num_scored = -1}})), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Request(1, {{.tokens = {100}, .num_scored = 5}})), StatusCode::kInvalidArgument);
  GenerateRequest plain = Request(1, {{.num_scored = 1}});
  plain.sampling.num_prompt_logprobs = -1;
  EXPECT_EQ(code(plain), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lamina::testing
