// The GPU as a compute device, against the CPU's. Without a GPU these tests run in builds whose
// kernels are emulated (docs/cuda.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "cuda_sequences.h"
#include "tests/support/families.h"
#include "tests/support/gguf_models.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_checkpoint.h"

namespace lamina {
namespace cuda_device_test {

using testing::Families;
using ::testing::HasSubstr;

class CudaFamiliesTest : public CudaDeviceTest,
                         public ::testing::WithParamInterface<testing::Family> {};

TEST_P(CudaFamiliesTest, SlicesAndAttentionGiveTheLogitsOfTransformers) {
  const testing::FamilyGolden golden = GetParam().Golden();
  OneSequence sequence(*device_, GetParam().dir, DType::kF32);
  const std::span<const TokenId> prompt = golden.prompt;
  std::vector<float> logits;
  for (size_t begin = 0; begin < prompt.size(); begin += 7) {
    const std::span<const TokenId> chunk =
        prompt.subspan(begin, std::min<size_t>(7, prompt.size() - begin));
    logits = sequence.Step(chunk, {static_cast<int>(chunk.size()) - 1});
  }
  for (size_t i = 0; i < 3; ++i) {
    SCOPED_TRACE("token " + std::to_string(i));
    ExpectNear(logits, golden.logits[i], kLogitTolerance);
    logits = sequence.Step({&golden.tokens[i], 1}, {0});
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaFamiliesTest, ::testing::ValuesIn(Families()),
                         [](const auto& info) { return TestName(info.param); });
INSTANTIATE_TEST_SUITE_P(Quantized, CudaFamiliesTest,
                         ::testing::ValuesIn(testing::QuantizedFamilies()),
                         [](const auto& info) { return TestName(info.param); });

// The head is the embedding, and in memory twice: as codes and as a table.
TEST_F(CudaDeviceTest, GgufWeightsGiveTheLogitsOfTheirDequantizedValues) {
  const TemporaryFolder folder;
  for (const testing::GgufGolden& golden : testing::GgufGoldens()) {
    SCOPED_TRACE(golden.format);
    const std::string file = folder / (golden.format + ".gguf");
    testing::WriteTinyStories(golden.format, file);
    OneSequence sequence(*device_, file, DType::kF32);
    std::span<const TokenId> prompt = golden.prompts.front().prompt_ids;
    for (; prompt.size() > kMaxRows; prompt = prompt.subspan(kMaxRows))
      sequence.Step(prompt.first(kMaxRows), {kMaxRows - 1});
    ExpectNear(sequence.Step(prompt, {static_cast<int>(prompt.size()) - 1}), golden.first_logits,
               2e-3f);
  }
}

TEST_F(CudaDeviceTest, TwoPartsOfASliceAndKeptRowsAreThoseOfTheCpu) {
  TinyCheckpointOptions options;
  options.tied_head = true;  // one matrix, two roles
  options.attention_bias = true;
  for (const char* dtype : {"BF16", "F16", "F32"}) {
    SCOPED_TRACE(dtype);
    options.dtype = dtype;
    const TinyCheckpoint checkpoint(options);
    OneSequence here(cpu_, checkpoint.dir(), DType::kBF16),
        there(*device_, checkpoint.dir(), DType::kBF16);
    const std::vector<TokenId> prompt = {5, 9, 1, 44, 80, 3}, next = {17, 61, 2};
    // K and V are rounded to bf16: where the two devices' are on both sides of a rounding, they
    // differ by 2^-8.
    ExpectNear(there.Step(prompt, {1, 3, 4}), here.Step(prompt, {1, 3, 4}), 1e-2f);
    ExpectNear(there.Step(next, {0, 1, 2}, /*queries_first=*/true), here.Step(next, {0, 1, 2}),
               1e-2f);
    EXPECT_TRUE(there.Step({}, {}).empty()) << "a step without rows";
  }
}

// The first step of a size is launched kernel by kernel, the second is recorded, the others are
// replayed, each in buffers that hold what larger steps left there.
TEST_F(CudaDeviceTest, StepsThatAreReplayedAreThoseOfTheCpu) {
  TinyCheckpointOptions options;
  options.attention_bias = true;
  const TinyCheckpoint checkpoint(options);
  for (const bool queries_first : {false, true}) {
    OneSequence here(cpu_, checkpoint.dir(), DType::kF32),
        there(*device_, checkpoint.dir(), DType::kF32);
    TokenId token = 1;
    for (const int rows : {8, 3, 5, 3, 1, 5, 3, 8, 5, 1, 3, 1, 8, 1, 5}) {
      SCOPED_TRACE(rows);
      std::vector<TokenId> tokens;
      std::vector<int> kept;
      for (int i = 0; i < rows; ++i) {
        token = (token * 29 + 7) % 90;
        tokens.push_back(token);
        if (i % 2 == 0) kept.push_back(i);
      }
      ExpectNear(there.Step(tokens, kept, queries_first), here.Step(tokens, kept), kLogitTolerance);
    }
  }
}

TEST_F(CudaDeviceTest, MessagesAreThoseOfTheCpuBitForBit) {
  constexpr int64_t kRows = 6, kPitch = 40;
  TinyCheckpointOptions options;
  options.hidden_size = kPitch;
  const TinyCheckpoint checkpoint(options);
  WeightOptions weights;
  weights.model_dir = checkpoint.dir();
  const std::unique_ptr<LoadedModel> model = *device_->Load(weights);
  const std::unique_ptr<SliceRunner> slices = *device_->MakeSlices(*model, kRows);
  // The residual stream, [rows, hidden_size].
  float* const value = slices->value(model->sliced.slices[1].context_in[0]);
  std::vector<float> here(kRows * kPitch);
  for (size_t i = 0; i < here.size(); ++i) here[i] = std::sin(static_cast<float>(i)) * 3;
  Write(*device_, here, value);
  EXPECT_EQ(Read(*device_, value, kRows * kPitch), here);

  const std::vector<int> gaps = {0, 2, 5}, run = {2, 3, 4}, one = {4}, none;
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kF8, DType::kI8Scaled, DType::kF8Scaled}) {
    for (const std::vector<int>& rows : {gaps, run, one, none}) {
      const RowParts parts{rows, kPitch, 8, 24};
      const auto packed = [&](const float* of) {
        return std::vector<PackedParts>{{of, parts, dtype, /*head_dim=*/8},
                                        {of, RowParts{gaps, kPitch, 16, 8}, DType::kF32},
                                        {of, parts, DType::kBF16}};
      };
      std::vector<std::byte> expected(4096), got(4096);
      const auto bytes = cpu_.Pack(packed(here.data()), expected.data()) - expected.data();
      EXPECT_EQ(device_->Pack(packed(value), got.data()) - got.data(), bytes);
      EXPECT_EQ(got, expected);
      if (IsForKvOnly(dtype)) continue;  // a compute node only sends them

      std::vector<float> before(here.size(), 7.0f);
      Write(*device_, before, value);
      device_->Unpack(got.data(), dtype, parts, value);
      cpu_.Unpack(got.data(), dtype, parts, before.data());
      EXPECT_EQ(Read(*device_, value, kRows * kPitch), before);
      device_->AddUnpacked(got.data(), dtype, parts.num_elements(), value);
      cpu_.AddUnpacked(got.data(), dtype, parts.num_elements(), before.data());
      EXPECT_EQ(Read(*device_, value, kRows * kPitch), before);
      Write(*device_, here, value);
    }
  }
}

TEST_F(CudaDeviceTest, RowsAreSampledAsTheirParametersSay) {
  const TinyCheckpoint checkpoint({});
  OneSequence sequence(*device_, checkpoint.dir(), DType::kF32);
  const std::vector<TokenId> prompt = {5, 9, 1, 44, 80};
  const std::vector<float> logits = sequence.Step(prompt, {0, 2, 3, 4});
  SamplingParams greedy, drawn, banned;
  greedy.temperature = banned.temperature = 0;
  drawn.seed = 7;
  drawn.num_logprobs = 2;
  const auto vocab = static_cast<size_t>(sequence.vocab());
  const auto likeliest =
      std::max_element(logits.begin() + static_cast<std::ptrdiff_t>(3 * vocab), logits.end());
  banned.banned = {
      static_cast<TokenId>(likeliest - logits.begin() - static_cast<std::ptrdiff_t>(3 * vocab))};
  banned.min_tokens = 1;
  const std::vector<SampleWork> work = {
      {0, &greedy, {}}, {1, &drawn, {prompt, {}}}, {3, &banned, {prompt, {}}}, {2, &greedy, {}}};
  std::vector<SampledToken> tokens(work.size());
  sequence.slices().Sample(work, tokens);
  for (size_t i = 0; i < work.size(); ++i) {
    std::vector<float> row(logits.begin() + static_cast<std::ptrdiff_t>(work[i].row * vocab),
                           logits.begin() + static_cast<std::ptrdiff_t>((work[i].row + 1) * vocab));
    const SampledToken expected = lamina::Sample(row, *work[i].params, work[i].context);
    EXPECT_EQ(tokens[i].token, expected.token) << i;
    EXPECT_EQ(tokens[i].logprob, expected.logprob) << i;
    EXPECT_EQ(tokens[i].top.size(), expected.top.size()) << i;
  }
  EXPECT_NE(tokens[2].token, banned.banned[0]);
}

TEST_F(CudaDeviceTest, ASequenceThatFailsLeavesTheOthersAlone) {
  const AttentionShape shape{4, 2, 8, 0.35f, 0};
  const KvShape kv{1, 2, 8, DType::kF32};
  constexpr size_t kRows = 3, kQ = 32, kK = 16;
  const TinyCheckpoint checkpoint({});
  WeightOptions weights;
  weights.model_dir = checkpoint.dir();
  // Its values are memory to work on.
  const std::unique_ptr<LoadedModel> model = *device_->Load(weights);
  const std::unique_ptr<SliceRunner> slices = *device_->MakeSlices(*model, kMaxRows);
  const Slice& slice = model->sliced.slices[0];
  float *const q = slices->value(slice.q), *const k = slices->value(slice.k),
               *const v = slices->value(slice.v);
  float* const out = slices->value(model->sliced.attentions[0].output);
  std::vector<float> values(kRows * kQ);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::cos(static_cast<float>(i));
  const std::vector<float> kv_values(values.begin(), values.begin() + kRows * kK);

  std::vector<AttentionWork> rows(kRows);  // of sequences 1, 2 and 3, of which 2 is not known
  for (size_t i = 0; i < kRows; ++i) rows[i].sequence = SequenceId{i + 1};
  const auto attended = [&](ComputeDevice& device, const float* q_of, const float* k_of,
                            const float* v_of, float* out_of) {
    std::unique_ptr<LocalKv> cache = *device.MakeKv(shape, kv, {}, 8);
    for (const uint64_t sequence : {1, 3}) {
      const auto slot = static_cast<TokenSlot>(sequence);
      EXPECT_TRUE(cache->cache().Append(SequenceId{sequence}, 0, {&slot, 1}, StepId{1}).ok());
    }
    Failures failures;
    cache->Attend({0, q_of, k_of, v_of, out_of}, StepId{1}, rows, failures);
    EXPECT_EQ(failures.size(), 1u);
    EXPECT_EQ(failures.at(SequenceId{2}).code(), StatusCode::kNotFound);
    return cache;
  };
  std::vector<float> expected(kRows * kQ);
  attended(cpu_, values.data(), kv_values.data(), kv_values.data(), expected.data());
  Write(*device_, values, q);
  Write(*device_, kv_values, k);
  Write(*device_, kv_values, v);
  const std::unique_ptr<LocalKv> cache = attended(*device_, q, k, v, out);
  const std::vector<float> got = Read(*device_, out, kRows * kQ);
  for (const size_t row : {size_t{0}, size_t{2}}) {
    for (size_t i = row * kQ; i < (row + 1) * kQ; ++i)
      ASSERT_NEAR(got[i], expected[i], 1e-6f) << "row " << row;
  }
  Failures failures;
  cache->Attend({0, q, k, v, out}, StepId{1}, rows, failures);
  EXPECT_EQ(failures.at(SequenceId{1}).code(), StatusCode::kCorrupt) << "the same token twice";
}

TEST_F(CudaDeviceTest, MadeUpTokensAreAttendedTo) {
  std::vector<TokenSlot> slots(599);
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<TokenSlot>(i);
  const TokenSlot last = 599;
  const TinyCheckpoint checkpoint({});
  WeightOptions weights;
  weights.model_dir = checkpoint.dir();
  const std::unique_ptr<LoadedModel> model = *device_->Load(weights);
  const std::unique_ptr<SliceRunner> slices = *device_->MakeSlices(*model, kMaxRows);
  const Slice& slice = model->sliced.slices[0];
  Write(*device_, std::vector<float>(32, 0.5f), slices->value(slice.q));
  Write(*device_, std::vector<float>(16, 0.5f), slices->value(slice.k));
  Write(*device_, std::vector<float>(16, 0.5f), slices->value(slice.v));
  const std::vector<AttentionWork> rows = {
      {.sequence = kSequence, .node = NodeId{}, .position = 599, .slot = last}};
  float* const out = slices->value(model->sliced.attentions[0].output);
  for (const KvShape& kv :
       {KvShape{2, 2, 8, DType::kBF16}, KvShape{2, 1, 16, DType::kF8},
        KvShape{2, 1, 16, DType::kI8Scaled}, KvShape{2, 1, 16, DType::kF8Scaled}}) {
    const AttentionShape shape{2 * kv.num_kv_heads, kv.num_kv_heads, kv.head_dim, 0.35f, 0};
    const std::unique_ptr<LocalKv> cache = *device_->MakeKv(shape, kv, {}, 600);
    EXPECT_TRUE(cache->cache().AppendDummy(kSequence, 0, slots, StepId{1}).ok());
    EXPECT_TRUE(cache->cache().Append(kSequence, 599, {&last, 1}, StepId{2}).ok());
    std::vector<std::vector<float>> outs;
    for (const int layer : {0, 1}) {
      Failures failures;
      cache->Attend(
          {layer, slices->value(slice.q), slices->value(slice.k), slices->value(slice.v), out},
          StepId{2}, rows, failures);
      EXPECT_TRUE(failures.empty());
      outs.push_back(Read(*device_, out, 32));
      for (const float x : outs.back())
        EXPECT_LT(std::abs(x), 0.2f) << "an average of 599 values around 0, and 0.5";
    }
    EXPECT_NE(outs[0], outs[1]);
  }
}

TEST_F(CudaDeviceTest, HeadsThatDoNotGoInto8BitsAreRefused) {
  for (const DType dtype : {DType::kF8, DType::kI8Scaled, DType::kF8Scaled}) {
    const Status made = device_->MakeKv({4, 2, 24, 1, 0}, {2, 2, 24, dtype}, {}, 8).status();
    EXPECT_EQ(made.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(made.message(),
                HasSubstr("head_dim 24 over K and V in " + std::string(DTypeName(dtype)) +
                          ": CUDA kernels have multiples of 16"));
  }
}

TEST_F(CudaDeviceTest, WhatDoesNotFitIsRefusedWithBothSizes) {
  const Result<std::unique_ptr<LocalKv>> kv =
      device_->MakeKv({32, 32, 128, 1, 0}, {80, 32, 128, DType::kBF16}, {}, int64_t{1} << 31);
  EXPECT_EQ(kv.status().code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(
      kv.status().message(),
      ::testing::ContainsRegex(
          "cuda:0 \\(.*\\) has [0-9.]+ GB free, and 2147483648 tokens of .* need 2814749.*GB"));
  const TinyCheckpoint checkpoint({});
  WeightOptions weights;
  weights.model_dir = checkpoint.dir();
  const std::unique_ptr<LoadedModel> model = *device_->Load(weights);
  const Result<std::unique_ptr<SliceRunner>> slices = device_->MakeSlices(*model, 1 << 30);
  EXPECT_EQ(slices.status().code(), StatusCode::kOutOfSpace) << slices.status();
}

// Tens of terabytes, which no GPU has.
TEST_F(CudaDeviceTest, AModelThatDoesNotFitIsRefusedBeforeItIsRead) {
  const TemporaryFolder folder;
  WriteFile(folder / "config.json",
            R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32000,
             "hidden_size": 65536, "intermediate_size": 1048576, "num_hidden_layers": 80,
             "num_attention_heads": 512, "max_position_embeddings": 2048, "hidden_act": "silu",
             "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "torch_dtype": "float16"})");
  WeightOptions weights;
  weights.model_dir = folder.path();
  weights.load_format = LoadFormat::kDummy;
  const Status status = device_->Load(weights).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(
      status.message(),
      ::testing::AllOf(HasSubstr("of weights for this node, and cuda:0 ("), HasSubstr("free")));
}

TEST_F(CudaDeviceTest, ProgressEndsWithAllBytes) {
  const TinyCheckpoint checkpoint({});
  WeightOptions weights;
  weights.model_dir = checkpoint.dir();
  const std::unique_ptr<LoadingModel> loading = *device_->StartLoad(weights);
  std::unique_ptr<LoadedModel> model;
  for (int64_t last = 0; model == nullptr; last = loading->progress().loaded_bytes) {
    model = *loading->Continue();
    EXPECT_GT(loading->progress().loaded_bytes, last);
  }
  EXPECT_EQ(loading->progress().loaded_bytes, loading->progress().total_bytes);
  EXPECT_EQ(model->weight_bytes, (*cpu_.Load(weights))->weight_bytes);
}

TEST_F(CudaDeviceTest, AGpuThatIsNotThereIsNamed) {
  const Status status = MakeComputeDevice(CudaGpu{1000}, team_).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("cuda:1000: no CUDA device 1000; there are 0 to "));
}

TEST(CudaDeviceWithout, AProgramOrAMachineWithoutCudaSaysSo) {
  const Result<int> count = cuda::DeviceCount();
  if (count.ok()) GTEST_SKIP() << "this machine has " << *count << " CUDA devices";
  WorkerTeam team(1);
  const Status status = MakeComputeDevice(CudaGpu{0}, team).status();
  EXPECT_EQ(status.code(), count.status().code());
  EXPECT_THAT(status.message(), HasSubstr("cuda:0: "));
}

}  // namespace cuda_device_test
}  // namespace lamina
