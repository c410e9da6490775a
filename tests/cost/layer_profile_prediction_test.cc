// LayerProfile::Predict against devices whose times are known by formula, and against measured
// ones.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "cost/layer_profile.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace layer_profile_prediction_test {

constexpr double kPeak = 100e12, kBandwidth = 1e12;
constexpr int kRows[] = {1, 64, 1024};

struct Layer {
  int heads, kv_heads, width, mlp;
  LayerProfile::Shape shape() const { return {heads, kv_heads, width, mlp}; }
};

// A device whose matrix products take `slowness` times (inputs / 8192)^steepness of their
// operations plus their bytes, and whose pointwise operators take 1 us and 1 ns an element,
// whatever the number of rows.
struct Formula {
  double slowness, steepness;

  double Matrix(double rows, double inputs, double outputs) const {
    const double ideal = 2 * rows * inputs * outputs / kPeak +
                         2 * (inputs * outputs + rows * (inputs + outputs)) / kBandwidth;
    return slowness * std::pow(inputs / 8192, steepness) * ideal;
  }
  static double Pointwise(double elements) { return 1e-6 + 1e-9 * elements; }

  double Before(const Layer& layer, double rows, double workers) const {
    const double head = static_cast<double>(layer.width) / layer.heads;
    const double heads = layer.heads / workers, kv_heads = layer.kv_heads / workers;
    return Pointwise(layer.width) + Matrix(rows, layer.width, (heads + 2 * kv_heads) * head) +
           Pointwise((heads + kv_heads) * head);
  }
  double After(const Layer& layer, double rows, double workers) const {
    const double mlp = layer.mlp / workers;
    return Matrix(rows, layer.width / workers, layer.width) + Pointwise(layer.width) +
           Matrix(rows, layer.width, 2 * mlp) + Pointwise(mlp) + Matrix(rows, mlp, layer.width) +
           2 * Pointwise(layer.width);
  }

  LayerProfile Measure(const Layer& layer, const std::string& file) const {
    std::ofstream out(file);
    out << "n_head,n_kv_head,n_embd,n_expanded_embd,num_tokens,num_tensor_parallel_workers,input_"
           "layernorm_ms,attn_pre_proj_ms,attn_rope_"
           "ms,"
           "attn_post_proj_ms,post_attention_layernorm_ms,mlp_up_proj_ms,mlp_act_ms,mlp_down_proj_"
           "ms,add_ms\n";
    const double head = static_cast<double>(layer.width) / layer.heads;
    for (const int workers : {1, 2, 4}) {
      const double heads = static_cast<double>(layer.heads) / workers,
                   kv_heads = static_cast<double>(layer.kv_heads) / workers;
      const double mlp = static_cast<double>(layer.mlp) / workers, norm = Pointwise(layer.width);
      for (const int rows : kRows) {
        out << fmt::format("{},{},{},{},{},{}", layer.heads, layer.kv_heads, layer.width, layer.mlp,
                           rows, workers);
        for (const double seconds :
             {norm, Matrix(rows, layer.width, (heads + 2 * kv_heads) * head),
              Pointwise((heads + kv_heads) * head), Matrix(rows, heads * head, layer.width), norm,
              Matrix(rows, layer.width, 2 * mlp), Pointwise(mlp), Matrix(rows, mlp, layer.width),
              norm})
          out << fmt::format(",{:.12g}", 1e3 * seconds);
        out << "\n";
      }
    }
    out.close();
    const Result<LayerProfile> profile = LayerProfile::Load(file, 1);
    EXPECT_TRUE(profile.ok()) << profile.status();
    return *profile;
  }
};

constexpr Layer kSmall{32, 32, 4096, 11008}, kLarge{64, 8, 8192, 28672},
    kOther{40, 40, 5120, 13824};

TEST(LayerProfilePrediction, ADeviceThatIsAlikeForAllMatricesIsFoundExactly) {
  const TemporaryFolder folder;
  const Formula device{1.7, 0};
  const LayerProfile small = device.Measure(kSmall, folder / "s.csv"),
                     large = device.Measure(kLarge, folder / "l.csv");
  const LayerProfile* const both[] = {&small, &large};
  for (const int workers : {1, 2, 8}) {
    const Result<LayerProfile> predicted =
        LayerProfile::Predict(both, kOther.shape(), workers, kPeak, kBandwidth);
    ASSERT_TRUE(predicted.ok()) << predicted.status();
    EXPECT_EQ(predicted->shape(), kOther.shape());
    EXPECT_EQ(predicted->workers(), workers);
    for (const int rows : kRows) {
      EXPECT_NEAR(predicted->BeforeAttentionSeconds(rows) / device.Before(kOther, rows, workers), 1,
                  1e-6)
          << rows << " " << workers;
      EXPECT_NEAR(predicted->AfterAttentionSeconds(rows) / device.After(kOther, rows, workers), 1,
                  1e-6)
          << rows << " " << workers;
    }
  }
}

TEST(LayerProfilePrediction, ASlownessThatGrowsWithTheInputsIsFollowedBeyondWhatWasMeasured) {
  const TemporaryFolder folder;
  const Formula device{1.7, -0.3};  // small matrices are slower
  const LayerProfile large = device.Measure(kLarge, folder / "l.csv");
  const LayerProfile* const one[] = {&large};
  const LayerProfile predicted = *LayerProfile::Predict(one, kSmall.shape(), 2, kPeak, kBandwidth);
  for (const int rows : kRows) {
    const double seconds =
        predicted.BeforeAttentionSeconds(rows) + predicted.AfterAttentionSeconds(rows);
    const double truth = device.Before(kSmall, rows, 2) + device.After(kSmall, rows, 2);
    const Formula flat{1.7, 0};
    EXPECT_NEAR(seconds / truth, 1, 0.03) << rows;
    EXPECT_GT(std::abs((flat.Before(kSmall, rows, 2) + flat.After(kSmall, rows, 2)) / truth - 1),
              0.05)
        << "else this shows nothing";
  }
}

TEST(LayerProfilePrediction, TheWorkersOfAFileCanBeChosenLater) {
  const TemporaryFolder folder;
  const Formula device{2, 0};
  const LayerProfile small = device.Measure(kSmall, folder / "s.csv");
  const Result<LayerProfile> four = small.WithWorkers(4);
  ASSERT_TRUE(four.ok());
  EXPECT_THAT(four->rows(), ::testing::ElementsAre(1, 64, 1024));
  EXPECT_NEAR(four->AfterAttentionSeconds(64), device.After(kSmall, 64, 4), 1e-12);
  EXPECT_EQ(small.WithWorkers(3).status().message(),
            folder / "s.csv" + ": no row has 3 tensor-parallel workers");
}

TEST(LayerProfilePrediction, WithoutProfilesThereIsNone) {
  EXPECT_EQ(LayerProfile::Predict({}, kSmall.shape(), 1, kPeak, kBandwidth).status().code(),
            StatusCode::kInvalidArgument);
}

// With LAMINA_PROFILES: each model's layer from the two others, as measured on A100s and H100s.
TEST(LayerProfilePrediction, MeasuredLayersArePredictedFromOthers) {
  const char* folder = std::getenv("LAMINA_PROFILES");
  if (folder == nullptr)
    GTEST_SKIP() << "LAMINA_PROFILES names no folder with measured layer times";
  struct Gpu {
    const char* name;
    double peak, bandwidth;
  };
  const char* const models[] = {"llama-2-7b", "codellama-34b", "llama-2-70b"};
  for (const Gpu& gpu : {Gpu{"a100", 312e12, 1935e9}, Gpu{"h100", 989e12, 3350e9}}) {
    std::vector<LayerProfile> files;
    for (const char* model : models)
      files.push_back(
          *LayerProfile::Load(fmt::format("{}/{}_{}_linear.csv", folder, gpu.name, model), 1));
    for (size_t left_out = 0; left_out < 3; ++left_out) {
      const LayerProfile* const others[] = {&files[(left_out + 1) % 3], &files[(left_out + 2) % 3]};
      const LayerProfile& truth = files[left_out];
      const LayerProfile predicted =
          *LayerProfile::Predict(others, truth.shape(), 1, gpu.peak, gpu.bandwidth);
      std::vector<double> errors;
      double mean = 0;
      for (const double rows : truth.rows()) {
        const double seconds =
            predicted.BeforeAttentionSeconds(rows) + predicted.AfterAttentionSeconds(rows);
        errors.push_back(std::abs(
            seconds / (truth.BeforeAttentionSeconds(rows) + truth.AfterAttentionSeconds(rows)) -
            1));
        mean += errors.back() / static_cast<double>(truth.rows().size());
      }
      std::sort(errors.begin(), errors.end());
      EXPECT_LT(mean, 0.10) << gpu.name << " " << models[left_out];
      EXPECT_LT(errors[errors.size() / 2], 0.06) << gpu.name << " " << models[left_out];
      EXPECT_LT(errors.back(), 0.25) << gpu.name << " " << models[left_out];
    }
  }
}

}  // namespace layer_profile_prediction_test
}  // namespace lamina
