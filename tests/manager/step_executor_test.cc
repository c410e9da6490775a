#include "manager/step_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/control_channel.h"
#include "wire/codec.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;

constexpr NodeId kFirst{1}, kSecond{2};

TEST(MemoryOrderTest, SaysWhereInTheirSequencesTokensStand) {
  StepPlan plan;
  plan.step = StepId{3};
  Work decode;
  decode.sequence = SequenceId{1};
  decode.first_position = 20;
  decode.route = {{.node = kFirst, .num_stored = 12, .slots = {}},
                  {.node = kSecond, .num_stored = 8, .slots = {5}}};
  Work prefill;
  prefill.sequence = SequenceId{2};
  prefill.first_position = 7;
  prefill.prefill = true;
  prefill.route = {{.node = kFirst, .num_stored = 7, .slots = {1, 2, 3}},
                   {.node = kSecond, .num_stored = 0, .slots = {4, 6}}};
  plan.work = {decode, prefill};

  const MemoryOrder first = MakeMemoryOrder(9, plan, kFirst),
                    second = MakeMemoryOrder(9, plan, kSecond);
  EXPECT_EQ(first.decode[0].position, 20);
  EXPECT_EQ(second.decode[0].position, 20);
  EXPECT_EQ(first.prefill[0].first_position, 7);
  EXPECT_EQ(second.prefill[0].first_position, 10) << "behind the three tokens of the other node";
}

constexpr size_t kFrame = kMaxFrameBytes;

// A prompt of 900,000 tokens was computed and is cached; then many begin with it at a time.
TEST(OrderSizeTest, ManyStartsOfALongCachedPromptAreSpreadOverSteps) {
  constexpr int kNumStarts = 20;
  constexpr int kFirstToken = 1 << 21;  // four bytes each
  SchedulerOptions options;
  options.max_num_batched_tokens = 1 << 20;
  options.max_model_len = 1 << 20;
  options.prefix_caching = true;
  Scheduler scheduler(options, MakeFifoQueue(), MakeLeastLoadedPlacement());
  scheduler.AddNode({kFirst, int64_t{1} << 22});
  std::vector<TokenId> prompt(900'000);
  for (size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = kFirstToken + static_cast<TokenId>(i % 1000);
  const auto sample_all = [&](const StepPlan& plan) {
    std::vector<Scheduler::Sampled> sampled;
    for (const Work& work : plan.work) sampled.push_back({work.sequence, kFirstToken});
    scheduler.CompleteStep(sampled);
  };
  ASSERT_TRUE(scheduler.Add({SequenceId{1}, prompt, 4}).ok());
  for (int step = 0; step < 3; ++step) sample_all(scheduler.NextStep());
  scheduler.Finish(SequenceId{1});
  for (uint64_t id = 2; id < 2 + kNumStarts; ++id)
    ASSERT_TRUE(scheduler.Add({SequenceId{id}, prompt, 4}).ok());

  int num_started = 0, num_steps = 0;
  for (; num_started < kNumStarts && num_steps < kNumStarts; ++num_steps) {
    const StepPlan plan = scheduler.NextStep();
    std::vector<NewSequence> added;
    for (const Work& work : plan.work) {
      if (!work.first) continue;
      EXPECT_EQ(work.route.front().shared.size(), prompt.size() - 1);
      NewSequence& sequence = added.emplace_back();
      sequence.tokens.assign(prompt.begin(), prompt.end());
      ++num_started;
    }
    EXPECT_LE(Encode(MakeComputeOrder(9, plan, added, /*local=*/true)).size(), kFrame)
        << added.size() << " sequences start";
    EXPECT_LE(Encode(MakeMemoryOrder(9, plan, kFirst)).size(), kFrame)
        << added.size() << " sequences start";
    EXPECT_LE(MaxOrderBytes(plan, added), kFrame);
    sample_all(plan);
  }
  EXPECT_EQ(num_started, kNumStarts);
  EXPECT_LE(num_steps, kNumStarts / 2) << "two fit at a time";
}

// Numbers as large as they can be.
TEST(OrderSizeTest, NoOrderIsLargerThanTheBound) {
  constexpr uint64_t kLong = ~uint64_t{0};
  StepPlan plan;
  plan.step = StepId{kLong};
  plan.batch = 15;
  plan.rotates = plan.dummy_prefill = true;
  plan.released.assign(100, SequenceId{kLong});
  Work work;
  work.sequence = SequenceId{kLong};
  work.first_position = int64_t{1} << 62;
  work.sample = work.first = true;
  work.tokens.assign(50, 0x7fffffff);
  const std::vector<TokenSlot> slots(50, 0xffffffff), shared(70, 0xffffffff);
  work.route = {{NodeId{0xffffffff}, int64_t{1} << 62, slots, shared},
                {NodeId{0xffffffff}, int64_t{1} << 62, {}, {}}};
  plan.work.push_back(work);
  work.prefill = true;
  plan.work.push_back(work);
  NewSequence added;
  added.sequence = SequenceId{kLong};
  added.tokens = work.tokens;
  added.num_prompt_tokens = 0x7fffffff;
  added.sampling.banned.assign(100, -1);
  added.sampling.logit_bias.assign(100, {-1, 1.5f});
  added.sampling.bad_words.assign(10, {{0x7fffffff, 0x7fffffff}});
  added.sampling.bad_words.push_back({{-1, -1}});
  added.sampling.allowed_tokens.assign(1000, 'x');
  added.sampling.grammar.assign(1000, 'x');
  added.sampling.seed = kLong;
  added.sampling.temperature = added.sampling.min_p = added.sampling.frequency_penalty =
      added.sampling.presence_penalty = 1.5f;
  added.sampling.top_k = added.sampling.num_logprobs = added.sampling.min_tokens = -1;
  for (int copies = 0; copies < 2; ++copies) {
    const std::vector<NewSequence> all(plan.work.size(), added);
    const size_t bound = MaxOrderBytes(plan, all);
    EXPECT_LE(Encode(MakeComputeOrder(kLong, plan, all, /*local=*/true)).size(), bound);
    EXPECT_LE(Encode(MakeMemoryOrder(kLong, plan, NodeId{0xffffffff})).size(), bound);
    plan.work.insert(plan.work.end(), 100, plan.work.front());
  }
}

TEST(OrderSizeTest, WhatDoesNotFitIsLeftOutAndTheRestGoesOn) {
  StepPlan plan;
  plan.released = {SequenceId{9}};
  plan.work.resize(3);
  for (size_t i = 0; i < 3; ++i) plan.work[i].sequence = SequenceId{i + 1};
  plan.work[2].first = true;
  const std::vector<NewSequence> added(1);
  const auto fitted_to = [&](size_t num_work) {
    return FitOrders(plan, added, [&](const StepPlan& some, const auto&) {
      return some.work.size() <= num_work;
    });
  };
  const FittedStep all = fitted_to(3), without_start = fitted_to(2), nothing = fitted_to(1);
  EXPECT_TRUE(all.left_out.empty());
  EXPECT_EQ(all.plan.work.size(), 3u);
  EXPECT_EQ(all.added.size(), 1u);
  ASSERT_EQ(without_start.left_out.size(), 1u);
  EXPECT_EQ(without_start.left_out[0].sequence, SequenceId{3});
  EXPECT_EQ(without_start.left_out[0].cause, FailureCause::kRequest);
  EXPECT_EQ(without_start.plan.work.size(), 2u);
  EXPECT_TRUE(without_start.added.empty());
  ASSERT_EQ(nothing.left_out.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const auto& [sequence, why, cause] = nothing.left_out[i];
    EXPECT_EQ(sequence, SequenceId{i == 0 ? size_t{3} : i});
    EXPECT_EQ(cause, i == 0 ? FailureCause::kRequest : FailureCause::kKvLost) << i;
    EXPECT_THAT(why.message(), HasSubstr("more than they take: 67108864 bytes"));
  }
  EXPECT_TRUE(nothing.plan.work.empty());
  EXPECT_EQ(nothing.plan.released, plan.released) << "nodes forget what is over in any case";
}

TEST(AttentionSpecTest, HasTheModelsScaleCapAndWindows) {
  ModelConfig model;
  model.num_layers = 2;
  model.head_dim = 16;
  EXPECT_EQ(MakeAttentionSpec(model, DType::kF32, DType::kF32).scale, 0.25f);
  EXPECT_EQ(MakeAttentionSpec(model, DType::kF32, DType::kF16).kv_dtype, DType::kF32);
  EXPECT_EQ(MakeAttentionSpec(model, DType::kF32, DType::kF16).wire_dtype, DType::kF16);
  EXPECT_EQ(MakeAttentionSpec(model, DType::kBF16, DType::kF32).kv_dtype, DType::kBF16);
  EXPECT_EQ(MakeAttentionSpec(model, DType::kF8, DType::kF32).kv_dtype, DType::kF8);
  EXPECT_TRUE(MakeAttentionSpec(model, DType::kF32, DType::kF32).windows.empty());
  model.query_pre_attn_scalar = 64;
  model.attention_soft_cap = 50;
  model.windows = {{12}, {8, true}};
  const AttentionSpec spec = MakeAttentionSpec(model, DType::kF32, DType::kF32);
  EXPECT_EQ(spec.scale, 0.125f);
  EXPECT_EQ(spec.soft_cap, 50);
  EXPECT_EQ(spec.windows, model.windows);
}

}  // namespace
}  // namespace lamina
