// A device measured on this machine: the files are read back, and every operator of a step counts
// once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/clock.h"
#include "bench/profile/attention_times.h"
#include "bench/profile/layer_times.h"
#include "cost/layer_profile.h"
#include "cost/node_device.h"
#include "kernels/cpu_features.h"
#include "tests/support/golden_prompts.h"
#include "tests/support/server_process.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<LoadedModel> DummyModel(const std::string& dir, WorkerTeam& team) {
  WeightOptions options;
  options.model_dir = dir;
  options.load_format = LoadFormat::kDummy;
  Result<std::unique_ptr<LoadedModel>> model = LoadedModel::Load(options, team);
  EXPECT_TRUE(model.ok()) << model.status();
  return std::move(*model);
}

TEST(LayerTimes, EveryOperatorOfALayerHasItsColumn) {
  WorkerTeam team(1);
  const std::unique_ptr<LoadedModel> model = DummyModel(TinyStoriesDir(), team);
  std::vector<int64_t> reported;
  const std::vector<LayerTimes> times = MeasureLayers(
      *model, {1, 64}, team, [&](const LayerTimes& t) { reported.push_back(t.rows); });
  EXPECT_EQ(reported, (std::vector<int64_t>{1, 64}));
  for (const LayerTimes& t : times) {
    for (const double seconds : {t.input_norm, t.qkv, t.rope, t.output, t.post_norm, t.up,
                                 t.activation, t.down, t.add, t.head})
      EXPECT_GT(seconds, 0) << t.rows;
  }
  const ModelConfig& config = model->config;
  const auto matrices = static_cast<double>(config.num_heads * config.head_dim +
                                            2 * config.num_kv_heads * config.head_dim);
  EXPECT_NEAR(times[1].qkv / times[1].output, matrices / (config.num_heads * config.head_dim), 1)
      << "in proportion to their weights";
  EXPECT_NEAR(times[1].up / times[1].down, 2, 1)
      << "the gate counts with the first matrix of the MLP";
}

// A step's clock around the slices against the sum of the operators' clocks.
TEST(LayerTimes, AddUpToAStep) {
  WorkerTeam team(1);
  const std::unique_ptr<LoadedModel> model = DummyModel(TinyStoriesDir(), team);
  CpuDevice device(team);
  constexpr int kRows = 128;
  const std::vector<TokenId> tokens(kRows, 0);
  const std::vector<int32_t> positions(kRows, 0);
  double ratio = 0;
  // Others use the machine too.
  for (int attempt = 0; attempt < 5 && (ratio < 0.8 || ratio > 1.25); ++attempt) {
    const std::unique_ptr<SliceRunner> slices = *device.MakeSlices(*model, kRows);
    // The fastest, as others on the machine interrupt a step more likely than an operator.
    double step = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 15; ++i) {
      const TimePoint start = Clock::now();
      slices->Begin(tokens, positions);
      for (size_t k = 0; k < model->sliced.slices.size(); ++k) slices->Run(static_cast<int>(k));
      step = std::min(step, SecondsSince(start));
    }
    const LayerTimes times = MeasureLayers(*model, {kRows}, team, {}).front();
    ratio = (times.layer() * model->config.num_layers + times.head) / step;
  }
  EXPECT_GT(ratio, 0.8);
  EXPECT_LT(ratio, 1.25);
}

TEST(LayerTimes, AreReadBackAsAProfile) {
  ModelConfig model;
  model.num_heads = 8;
  model.num_kv_heads = 2;
  model.hidden_size = 64;
  model.intermediate_size = 256;
  LayerTimes two, four;
  two = {2, 1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3, 7e-3, 8e-3, 9e-3, 1};
  four = two;
  four.rows = 4;
  four.down = 108e-3;
  const TemporaryFolder folder;
  std::ofstream(folder / "a.csv") << ToCsv(model, {two, four});
  const Result<LayerProfile> profile = LayerProfile::Load(folder / "a.csv", 1);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->shape(), (LayerProfile::Shape{8, 2, 64, 256}));
  EXPECT_NEAR(profile->BeforeAttentionSeconds(2), 6e-3, 1e-9);
  EXPECT_NEAR(profile->AfterAttentionSeconds(2), 39e-3, 1e-9);
  EXPECT_NEAR(profile->AfterAttentionSeconds(3), 89e-3, 1e-9) << "half-way";
}

TEST(AttentionTimes, HaveADecodeAndPrompts) {
  WorkerTeam team(1);
  const AttentionHeads heads{4, 2, 64, DType::kBF16};
  const Result<std::vector<AttentionTime>> times = MeasureAttention(heads, team, 4 << 20);
  ASSERT_TRUE(times.ok()) << times.status();
  ASSERT_EQ(times->size(), 3u);
  EXPECT_DOUBLE_EQ(RowsPerToken(heads, times->at(0).load), 2)
      << "two heads look at each token of a kv head";
  EXPECT_DOUBLE_EQ(RowsPerToken(heads, times->at(1).load), 33)
      << "of 32 rows the mean one looks at 16.5 tokens";
  EXPECT_GT(RowsPerToken(heads, times->at(2).load), 400);
  for (const AttentionTime& time : *times) EXPECT_GT(time.seconds, 0);
  EXPECT_GT(times->at(2).seconds, times->at(1).seconds) << "500 rows against 32";
}

CommandOutput BenchProfile(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"bench", "profile"});
  return RunLamina(arguments, std::chrono::minutes(2));
}

TEST(ProfileCommand, WritesADeviceThatFitsTheModel) {
  if (!CpuSupports(CpuIsa::kAvx2)) GTEST_SKIP() << "this CPU lacks AVX2";
  const TemporaryFolder folder;
  const CommandOutput output = BenchProfile(
      {TinyStoriesDir(), "--rows", "4", "1", "4", "--out", folder / "", "--name", "here"});
  ASSERT_EQ(output.exit_status, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("here.yaml"));
  Result<std::optional<DeviceSpec>> device =
      FindModelledDevice("modelled:here", folder / "here.yaml");
  ASSERT_TRUE(device.ok()) << device.status();
  DeviceSpec& spec = **device;
  EXPECT_EQ(spec.mfu.size(), 2u);
  EXPECT_EQ(spec.attention_mfu.size(), 3u);
  const ModelConfig model = *ModelConfig::Load(TinyStoriesDir());
  ASSERT_TRUE(FitProfile(spec, model, 1).ok());
  EXPECT_EQ(spec.profile->shape().intermediate_size, model.intermediate_size);
  EXPECT_EQ(spec.profile->rows(), (std::vector<double>{1, 4}));
}

TEST(ProfileCommand, SaysWhatIsWrong) {
  EXPECT_THAT(BenchProfile({"--help"}).out, HasSubstr("Example:"));
  EXPECT_EQ(BenchProfile({TinyStoriesDir(), "--name", "a/b"}).exit_status, 2);
  EXPECT_EQ(BenchProfile({TinyStoriesDir(), "--out", "/nowhere"}).exit_status, 2);
  EXPECT_EQ(BenchProfile({TinyStoriesDir(), "--rows", "0"}).exit_status, 2);
  const TemporaryFolder folder;
  const CommandOutput missing = BenchProfile({folder / "none", "--out", folder / ""});
  EXPECT_EQ(missing.exit_status, 1);
  EXPECT_THAT(missing.err, HasSubstr("none"));
  EXPECT_TRUE(std::filesystem::is_empty(folder / "")) << "no file is left behind";
}

}  // namespace
}  // namespace lamina::testing
