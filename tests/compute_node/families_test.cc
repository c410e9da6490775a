// Every model family on this machine's kernels against Hugging Face transformers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>

#include "compute_node/compute_device.h"
#include "compute_node/local_attention.h"
#include "compute_node/slice_executor.h"
#include "compute_node/weight_ring.h"
#include "tests/support/families.h"
#include "tests/support/gguf_models.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace families_test {

using testing::Families;
using testing::Family;
using testing::FamilyGolden;
using testing::QuantizedFamilies;

constexpr int kMaxRows = 16;
constexpr SequenceId kSequence{1};

// The same graph without a splitter: what stands before an attention in the forward code runs
// before it.
SlicedModel InForwardOrder(const SlicedModel& model) {
  SlicedModel plain;
  plain.graph = model.graph;
  plain.attentions = model.attentions;
  plain.slices.resize(model.slices.size());
  Slice* slice = plain.slices.data();
  for (const Op& op : model.graph.ops) {
    if (op.kind == OpKind::kTokens || op.kind == OpKind::kPositions) continue;
    if (op.kind != OpKind::kAttention) {
      slice->program.push_back(op);
      continue;
    }
    slice->attention = slice->index;
    slice[1].index = slice->index + 1;
    (++slice)->attention_out = op.output;
  }
  return plain;
}

// One sequence through slices and local attention. With two executors slice k runs on number k % 2,
// which gets nothing but the context and the attention's output, as another node would.
class Runner {
 public:
  Runner(const LoadedModel& model, const SlicedModel& sliced, int num_executors) : sliced_(sliced) {
    const Op& first = sliced.attentions[0];
    const AttentionShape shape{first.num_heads, first.num_kv_heads, first.head_dim, first.scale,
                               first.soft_cap};
    const KvShape kv{static_cast<int>(sliced.attentions.size()), first.num_kv_heads, first.head_dim,
                     DType::kF32};
    AttentionLayers layers{.sinks = model.sinks};
    for (const Op& op : sliced.attentions) layers.windows.push_back(op.window);
    CpuDevice device(team_);
    attention_ = std::make_unique<LocalAttention>(*device.MakeKv(shape, kv, layers, 64), 1);
    for (int i = 0; i < num_executors; ++i) {
      executors_.push_back(
          std::make_unique<SliceExecutor>(sliced, *model.weights, kMaxRows, kMaxRows, team_));
    }
  }

  // Logits of the last one of `tokens`, which continue the sequence.
  std::vector<float> Step(std::span<const TokenId> tokens) {
    std::vector<int32_t> positions;
    std::vector<AttentionWork> rows;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto position = static_cast<int32_t>(num_tokens_ + std::ssize(rows));
      positions.push_back(position);
      rows.push_back({.sequence = kSequence,
                      .node = NodeId{},
                      .position = position,
                      .slot = static_cast<TokenSlot>(63 - position)});
    }
    num_tokens_ += std::ssize(tokens);
    attended_ = &attention_->Begin({0, StepId{++step_}, rows});
    for (const auto& executor : executors_) executor->Begin(tokens, positions);
    for (const Slice& slice : sliced_.slices) RunSlice(slice, tokens.size());
    EXPECT_TRUE(attended_->failures().empty());
    attended_->End();
    const SliceExecutor& last = *ExecutorOf(sliced_.slices.back());
    const auto width = static_cast<size_t>(last.width(sliced_.graph.logits));
    const float* const logits = ExecutorOf(sliced_.slices.back())->value(sliced_.graph.logits) +
                                (tokens.size() - 1) * width;
    return {logits, logits + width};
  }

 private:
  SliceExecutor* ExecutorOf(const Slice& slice) const {
    return executors_[static_cast<size_t>(slice.index) % executors_.size()].get();
  }

  void RunSlice(const Slice& slice, size_t rows) {
    SliceExecutor& executor = *ExecutorOf(slice);
    EXPECT_EQ(executor.Run(slice.index), nullptr);
    if (slice.attention < 0) return;
    const Op& op = sliced_.attentions[static_cast<size_t>(slice.attention)];
    SliceExecutor& next = *ExecutorOf(sliced_.slices[static_cast<size_t>(slice.index) + 1]);
    std::vector<float> out(rows * static_cast<size_t>(executor.width(op.output)));
    attended_->Start({op.layer, executor.value(op.inputs[0]), executor.value(op.inputs[1]),
                      executor.value(op.inputs[2]), out.data()});
    EXPECT_TRUE(attended_->Finish());
    for (const ValueId id : slice.context_out) {
      if (&next != &executor)
        std::copy_n(executor.value(id), rows * static_cast<size_t>(executor.width(id)),
                    next.value(id));
    }
    std::ranges::copy(out, next.value(op.output));
  }

  WorkerTeam team_{1};
  const SlicedModel& sliced_;
  std::unique_ptr<LocalAttention> attention_;
  AttentionStep* attended_ = nullptr;  // the step under way
  std::vector<std::unique_ptr<SliceExecutor>> executors_;
  int64_t num_tokens_ = 0;
  uint64_t step_ = 0;
};

// Logits that choose each of the golden tokens: the prompt in chunks of 7, then token by token.
// Calls `before` before each step.
std::vector<std::vector<float>> AllLogits(
    Runner runner, const FamilyGolden& golden, const std::function<void()>& before = [] {}) {
  std::vector<std::vector<float>> all;
  const std::span<const TokenId> prompt = golden.prompt;
  std::vector<float> logits;
  for (size_t begin = 0; begin < prompt.size(); begin += 7) {
    before();
    logits = runner.Step(prompt.subspan(begin, std::min<size_t>(7, prompt.size() - begin)));
  }
  for (const TokenId& token : golden.tokens) {
    all.push_back(std::move(logits));
    before();
    logits = runner.Step({&token, 1});
  }
  return all;
}

class FamiliesTest : public ::testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    WeightOptions options;
    options.model_dir = GetParam().dir;
    Result<std::unique_ptr<LoadedModel>> model = LoadedModel::Load(options, team_);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = std::move(*model);
  }

  const FamilyGolden golden_ = GetParam().Golden();
  WorkerTeam team_{1};
  std::unique_ptr<LoadedModel> model_;
};

void ExpectLogits(const std::vector<std::vector<float>>& logits, const FamilyGolden& golden,
                  float tolerance = 2e-4f) {
  ASSERT_EQ(logits.size(), golden.logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const std::vector<float>& expected = golden.logits[i];
    ASSERT_EQ(logits[i].size(), expected.size());
    float largest = 0;
    for (const float logit : expected) largest = std::max(largest, std::abs(logit));
    for (size_t j = 0; j < expected.size(); ++j)
      ASSERT_NEAR(logits[i][j], expected[j], tolerance * largest)
          << "token " << i << " logit " << j;
    const auto chosen = std::ranges::max_element(logits[i]) - logits[i].begin();
    ASSERT_EQ(chosen, golden.tokens[i]) << "token " << i;
  }
}

TEST_P(FamiliesTest, SlicesGiveTheLogitsOfTransformers) {
  ExpectLogits(AllLogits(Runner(*model_, model_->sliced, 1), golden_), golden_);
}

TEST_P(FamiliesTest, SlicesAreTheUnsplitModelBitForBit) {
  const SlicedModel unsplit = InForwardOrder(model_->sliced);
  const std::vector<std::vector<float>> whole = AllLogits(Runner(*model_, unsplit, 1), golden_);
  ExpectLogits(whole, golden_);
  EXPECT_EQ(AllLogits(Runner(*model_, model_->sliced, 1), golden_), whole);
  EXPECT_EQ(AllLogits(Runner(*model_, model_->sliced, 2), golden_), whole)
      << "on two executors, which share the context only";
}

// What is no longer needed in memory is overwritten.
TEST_P(FamiliesTest, WeightsThatTakeTurnsInMemoryGiveTheSameBits) {
  const std::vector<std::vector<float>> whole =
      AllLogits(Runner(*model_, model_->sliced, 1), golden_);
  WeightOptions options;
  options.model_dir = GetParam().dir;
  const int num_slices = static_cast<int>(model_->sliced.slices.size());
  const TemporaryFolder folder;
  const OffloadOptions poisoned{.folder = folder.path(), .buffers = 1, .poison = true};
  std::vector<OffloadOptions> all;
  for (int interval = 1; interval <= num_slices; ++interval) {
    all.push_back(poisoned);
    all.back().interval = interval;
  }
  for (const double portion : {0.3, 0.7}) {
    all.push_back(poisoned);
    all.back().interval = 1;
    all.back().portion = portion;
  }
  all.push_back(poisoned);
  all.back().interval = 3;
  all.back().num_in_group = 2;
  int num_tried = 0;
  for (const OffloadOptions& offload : all) {
    Result<std::unique_ptr<LoadedModel>> model = LoadedModel::Load(options, team_, offload);
    if (num_slices / offload.interval * offload.num_in_group <= 1) {
      EXPECT_EQ(model.status().code(), StatusCode::kInvalidArgument) << offload.interval;
      continue;
    }
    ASSERT_TRUE(model.ok()) << model.status();
    ++num_tried;
    for (const int num_executors : {1, 2}) {
      ASSERT_EQ(AllLogits(Runner(**model, (*model)->sliced, num_executors), golden_), whole)
          << offload.interval << " " << offload.portion << " " << num_executors;
    }
    EXPECT_GT((*model)->weights->ring()->stats().num_entered, 0);
  }
  EXPECT_GT(num_tried, 2);
}

TEST_P(FamiliesTest, IntervalsThatChangeBetweenStepsGiveTheSameBits) {
  const std::vector<std::vector<float>> whole =
      AllLogits(Runner(*model_, model_->sliced, 1), golden_);
  WeightOptions options;
  options.model_dir = GetParam().dir;
  const int num_slices = static_cast<int>(model_->sliced.slices.size());
  std::mt19937 random(1);
  for (const int buffers : {1, 2}) {
    const TemporaryFolder folder;
    const Result<std::unique_ptr<LoadedModel>> model = LoadedModel::Load(
        options, team_,
        {.is_auto = true, .folder = folder.path(), .buffers = buffers, .poison = true});
    ASSERT_TRUE(model.ok()) << model.status();
    for (const int num_executors : {1, 2}) {
      const auto change = [&] {
        (*model)->SetInterval(static_cast<int>(random() % static_cast<unsigned>(num_slices + 1)));
      };
      ASSERT_EQ(AllLogits(Runner(**model, (*model)->sliced, num_executors), golden_, change), whole)
          << buffers << " " << num_executors;
    }
    EXPECT_GT((*model)->weights->ring()->stats().num_entered, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, FamiliesTest, ::testing::ValuesIn(Families()),
                         [](const auto& info) { return TestName(info.param); });
INSTANTIATE_TEST_SUITE_P(Quantized, FamiliesTest, ::testing::ValuesIn(QuantizedFamilies()),
                         [](const auto& info) { return TestName(info.param); });
// The same models as GGUF files.
INSTANTIATE_TEST_SUITE_P(Gguf, FamiliesTest, ::testing::ValuesIn(testing::GgufFamilies()),
                         [](const auto& info) { return TestName(info.param); });

// Quantized ones against the forward pass in double precision with their dequantized weights. Only
// what is looked up in a table is rounded to fp16, unless the model's dtype is fp32.
TEST(GgufLogitsTest, QuantizedWeightsGiveTheLogitsOfTheirDequantizedValues) {
  const TemporaryFolder folder;
  ASSERT_EQ(testing::GgufGoldens().size(), 5u);
  for (const testing::GgufGolden& golden : testing::GgufGoldens()) {
    SCOPED_TRACE(golden.format);
    const testing::GoldenPrompt& prompt = golden.prompts.front();
    const FamilyGolden first{.prompt = prompt.prompt_ids,
                             .tokens = {prompt.continuation_ids.front()},
                             .logits = {golden.first_logits}};
    const std::string file = folder / (golden.format + ".gguf");
    testing::WriteTinyStories(golden.format, file);
    WorkerTeam team(1);
    WeightOptions options;
    options.model_dir = file;
    const auto model = *LoadedModel::Load(options, team);
    ExpectLogits(AllLogits(Runner(*model, model->sliced, 1), first), first, 2e-3f);
    if (golden.format == "f16") continue;
    model->config.dtype = DType::kF32;
    model->weights = *Weights::Load(model->part(), model->config, options, team);
    ExpectLogits(AllLogits(Runner(*model, model->sliced, 1), first), first, 1e-5f);
  }
}

}  // namespace families_test
}  // namespace lamina
