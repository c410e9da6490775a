// Folders with quantized weights, made of ones with plain weights and read again.
#include "quantize/quantize_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "compute_node/compute_device.h"
#include "compute_node/quantized_checkpoint.h"
#include "compute_node/safetensors.h"
#include "kernels/elementwise.h"
#include "model/model_config.h"
#include "quantize/perplexity.h"
#include "splitter/slices.h"
#include "tests/support/families.h"
#include "tests/support/golden_prompts.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class QuantizeCheckpointTest : public ::testing::Test {
 protected:
  Result<QuantizedCounts> Quantize(const std::string& model, const std::string& scheme,
                                   const std::string& name) {
    QuantizeOptions options;
    options.model_dir = model;
    options.out_dir = folder_ / name;
    options.scheme = *SchemeNamed(scheme);
    return QuantizeCheckpoint(options, team_);
  }

  WorkerTeam team_{2};
  const TemporaryFolder folder_;
};

// How far the numbers of `matrix` are from those of a plain one, in scales of their groups: the
// share of them that is farther than half a scale away, which are those that a scale cuts off.
double ShareCutOff(const QuantizedMatrix& matrix, const TensorView& plain) {
  std::vector<float> weights(matrix.codes.size());
  ConvertToFloat(plain.data.data(), plain.dtype, std::ssize(weights), weights.data());
  const auto in = static_cast<size_t>(matrix.in_features);
  int num_cut_off = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const size_t group = i / in * static_cast<size_t>(matrix.num_groups()) +
                         static_cast<size_t>(matrix.GroupOf(static_cast<int64_t>(i % in)));
    const double scale = static_cast<double>(matrix.scales[group]);
    double number = 0, step = scale;
    switch (matrix.format.code) {
      case WeightCode::kF8:
        number = scale * static_cast<double>(ToFloat(F8{matrix.codes[i]}));
        step = std::max(std::abs(number) / 8, scale / 512);
        break;
      case WeightCode::kInt8: number = scale * static_cast<int8_t>(matrix.codes[i]); break;
      default:
        number = scale * (matrix.codes[i] - (matrix.zeros.empty() ? 8 : matrix.zeros[group]));
    }
    num_cut_off += std::abs(number - static_cast<double>(weights[i])) > 0.5001 * step;
  }
  return static_cast<double>(num_cut_off) / static_cast<double>(weights.size());
}

TEST_F(QuantizeCheckpointTest, FamiliesAreReadAgain) {
  std::set<std::string> kinds;
  for (const Family& family : Families()) {
    const ModelConfig config = *ModelConfig::Load(family.dir);
    if (config.imported != nullptr) continue;
    for (const std::string scheme : {"w4g32", "w4g32z", "w8", "w8g32", "fp8"}) {
      const std::string name = family.name + "-" + scheme;
      const Result<QuantizedCounts> counts = Quantize(family.dir, scheme, name);
      if (!counts.ok()) {
        // Of these tiny models some have inputs that no group divides.
        ASSERT_THAT(counts.status().message(),
                    HasSubstr("no multiple of the scheme's groups of 32"))
            << name;
        continue;
      }
      const std::string dir = folder_ / name;
      const Result<ModelConfig> quantized = ModelConfig::Load(dir);
      ASSERT_TRUE(quantized.ok()) << quantized.status();
      ASSERT_TRUE(quantized->quantization) << name;
      WeightOptions options;
      options.model_dir = dir;
      const auto model = LoadedModel::Load(options, team_);
      ASSERT_TRUE(model.ok()) << name << ": " << model.status();
      const auto plain = *Checkpoint::Open(family.dir), codes = *Checkpoint::Open(dir);
      int64_t num_quantized = 0;
      for (const std::string& tensor : plain->names()) {
        const RawTensor before = *plain->FindRaw(tensor);
        const std::optional<RawTensor> after = codes->FindRaw(tensor);
        if (after && after->dtype == before.dtype) {
          EXPECT_TRUE(std::ranges::equal(before.data, after->data)) << tensor;
          continue;
        }
        ++num_quantized;
        const WeightRef weight{.name = tensor, .shape = {before.shape.begin(), before.shape.end()}};
        const auto found = FindQuantized(*codes, *quantized->quantization, weight);
        ASSERT_TRUE(found.ok() && *found) << tensor << found.status();
        const auto matrix = ReadQuantized(**found);
        ASSERT_TRUE(matrix.ok()) << matrix.status();
        const auto view = plain->Find(tensor, before.shape);
        EXPECT_LT(ShareCutOff(*matrix, *view), 0.08) << name << " " << tensor;
      }
      EXPECT_EQ(num_quantized, counts->num_quantized) << name;
      EXPECT_GT(num_quantized, 0) << name;
      kinds.insert(family.name);
    }
  }
  EXPECT_GE(kinds.size(), 8u);
}

TEST_F(QuantizeCheckpointTest, TheShippedModelPredictsNearlyAsWell) {
  PerplexityOptions options;
  options.by_lines = true;
  options.model_dir = TinyStoriesDir();
  const std::string text =
      "Once upon a time, on a windy hill, there lived a clever fox called Rosa. One day she found "
      "a "
      "silver key. \"Oh!\" said Rosa. The sun was warm and bright.\n"
      "One rainy day, Mira found a kite. She was very happy and ran home to show it to "
      "everybody.\n";
  const Result<Perplexity> plain = MeasurePerplexity(options, text, team_);
  ASSERT_TRUE(plain.ok()) << plain.status();
  for (const auto& [scheme, most] : std::vector<std::pair<std::string, double>>{
           {"w8", 1.01}, {"fp8", 1.03}, {"w4g32z", 1.15}, {"w4g64", 1.2}}) {
    const Result<QuantizedCounts> counts = Quantize(TinyStoriesDir(), scheme, scheme);
    ASSERT_TRUE(counts.ok()) << counts.status();
    EXPECT_EQ(counts->num_quantized, 4 * 7);
    EXPECT_LT(counts->bytes_after, 2 * counts->bytes_before / 3) << "a head stays as it is";
    options.model_dir = folder_ / scheme;
    const Result<Perplexity> coded = MeasurePerplexity(options, text, team_);
    ASSERT_TRUE(coded.ok()) << coded.status();
    EXPECT_LT(coded->value(), most * plain->value()) << scheme;
    EXPECT_TRUE(fs::exists(fs::path(options.model_dir) / "tokenizer.model"));
  }
}

TEST_F(QuantizeCheckpointTest, SaysWhatCannotBeAndLeavesNothing) {
  fs::create_directory(folder_ / "there");
  EXPECT_THAT(Quantize(TinyStoriesDir(), "w8", "there").status().message(),
              HasSubstr("there is there already"));
  ASSERT_TRUE(Quantize(TinyStoriesDir(), "w8", "once").ok());
  EXPECT_THAT(Quantize(folder_ / "once", "w8", "twice").status().message(),
              HasSubstr("quantized already"));
  EXPECT_EQ(Quantize(folder_ / "none", "w8", "of-none").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Quantize("/models/a.gguf", "w8", "of-gguf").status().message(),
              HasSubstr("expected a folder"));
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder_.path()))
    left.insert(entry.path().filename().string());
  EXPECT_EQ(left, (std::set<std::string>{"there", "once"}));
}

}  // namespace
}  // namespace lamina::testing
