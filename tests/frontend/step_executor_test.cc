#include "frontend/step_executor.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

constexpr NodeId kFirst{1}, kSecond{2};

TEST(MemoryOrderTest, SaysWhereInTheirSequencesTokensStand) {
  StepPlan plan;
  plan.step = StepId{3};
  Work decode;
  decode.sequence = SequenceId{1};
  decode.first_position = 20;
  decode.route = {{.node = kFirst, .num_stored = 12, .slots = {}}, {.node = kSecond, .num_stored = 8, .slots = {5}}};
  Work prefill;
  prefill.sequence = SequenceId{2};
  prefill.first_position = 7;
  prefill.prefill = true;
  prefill.route = {{.node = kFirst, .num_stored = 7, .slots = {1, 2, 3}}, {.node = kSecond, .num_stored = 0, .slots = {4, 6}}};
  plan.work = {decode, prefill};

  const control::MemoryOrder first = MakeMemoryOrder(9, plan, kFirst), second = MakeMemoryOrder(9, plan, kSecond);
  EXPECT_EQ(first.decode(0).position(), 20);
  EXPECT_EQ(second.decode(0).position(), 20);
  EXPECT_EQ(first.prefill(0).first_position(), 7);
  EXPECT_EQ(second.prefill(0).first_position(), 10) << "behind the three tokens of the other node";
}

TEST(AttentionSpecTest, HasTheModelsScaleCapAndWindows) {
  ModelConfig model;
  model.num_layers = 2;
  model.head_dim = 16;
  EXPECT_EQ(MakeAttentionSpec(model, "float32", "float32").scale(), 0.25f);
  EXPECT_EQ(MakeAttentionSpec(model, "float32", "float16").kv_dtype(), control::KV_DTYPE_FLOAT32);
  EXPECT_EQ(MakeAttentionSpec(model, "float32", "float16").wire_dtype(), control::KV_DTYPE_FLOAT16);
  EXPECT_EQ(MakeAttentionSpec(model, "bfloat16", "float32").kv_dtype(), control::KV_DTYPE_BFLOAT16);
  EXPECT_EQ(MakeAttentionSpec(model, "fp8", "float32").kv_dtype(), control::KV_DTYPE_FP8);
  EXPECT_TRUE(MakeAttentionSpec(model, "float32", "float32").windows().empty());
  model.query_pre_attn_scalar = 64;
  model.attention_soft_cap = 50;
  model.windows = {12, 0};
  const control::AttentionSpec spec = MakeAttentionSpec(model, "float32", "float32");
  EXPECT_EQ(spec.scale(), 0.125f);
  EXPECT_EQ(spec.soft_cap(), 50);
  ASSERT_EQ(spec.windows_size(), 2);
  EXPECT_EQ(spec.windows(0), 12);
  EXPECT_EQ(spec.windows(1), 0);
}

}  // namespace
}  // namespace lamina
