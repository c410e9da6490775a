// What is reckoned from a model's config.json, or from a GGUF file's keys, against the tensors that
// real tools wrote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "cost/cost_model.h"
#include "gguf/gguf_model.h"
#include "tests/support/gguf_models.h"
#include "tests/support/paths.h"

namespace lamina {
namespace {

using nlohmann::json;

// Bytes of all tensors in a safetensors file, but for what only says how to read others.
int64_t TensorBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof length);
  std::string text(length, '\0');
  file.read(text.data(), static_cast<std::streamsize>(length));
  const json header = json::parse(text);
  int64_t bytes = 0;
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__" || name.ends_with("weight_shape") || name.ends_with("g_idx"))
      continue;
    bytes += tensor["data_offsets"][1].get<int64_t>() - tensor["data_offsets"][0].get<int64_t>();
  }
  return bytes;
}

class CheckpointBytes : public ::testing::TestWithParam<std::pair<const char*, double>> {};

// Some have a layer that is not quantized, or few inputs for each scale of an output.
TEST_P(CheckpointBytes, AreReckoned) {
  const auto& [name, tolerance] = GetParam();
  const std::string dir = SourcePath("/tests/fixtures/quantized/") + name;
  const Result<ModelConfig> config = ModelConfig::Load(dir);
  ASSERT_TRUE(config.ok()) << config.status();
  const auto stored = static_cast<double>(TensorBytes(dir + "/model.safetensors"));
  const auto reckoned = static_cast<double>(WeightBytes(*TraceModel(*config), config->dtype));
  EXPECT_NEAR(reckoned / stored, 1, tolerance);
}

INSTANTIATE_TEST_SUITE_P(Formats, CheckpointBytes,
                         ::testing::Values(std::pair("ct-w4g32", 0), std::pair("ct-w4g32-order", 0),
                                           std::pair("ct-w4g32-zero", 0), std::pair("gptq", 0),
                                           std::pair("gptq-w8", 0), std::pair("ct-w8", 0.03),
                                           std::pair("ct-int8", 0.03), std::pair("ct-fp8", 0.001),
                                           std::pair("awq", 0.05), std::pair("fp8-blocks", 0.05)),
                         [](const auto& info) {
                           std::string name = info.param.first;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// The tables are quantized there, and are dequantized when they are loaded.
TEST(QuantizedMatrices, OfGgufFilesAreExact) {
  for (const char* const name : {"llama31", "mixtral", "qwen2", "qwen3", "gemma2"}) {
    SCOPED_TRACE(name);
    const std::string path = testing::GgufFixture(name) + ".gguf";
    const ModelConfig config = *ModelConfig::Load(path);
    const std::unique_ptr<GgufModel> file = *GgufModel::Open(path);
    double stored = 0;
    for (const auto& [tensor_name, tensor] : file->tensors()) {
      if (tensor->shape.size() >= 2 && tensor_name != "token_embd.weight")
        stored += static_cast<double>(tensor->data.size());
    }
    if (file->Tensor("output.weight") == nullptr)
      stored += static_cast<double>(file->Tensor("token_embd.weight")->data.size());
    double reckoned = 0;
    const Graph graph = *TraceModel(config);
    for (const Op& op : graph.ops) {
      if (op.kind == OpKind::kEmbedding) continue;
      for (const WeightRef& weight : op.weights)
        reckoned += weight.shape.size() == 2 ? StoredBytes(weight, config.dtype) : 0;
    }
    EXPECT_NEAR(reckoned / stored, 1, 1e-9);
  }
}

TEST(QuantizedMatrices, BoundSmallBatchesOnly) {
  ModelConfig config = *ModelConfig::Load(SourcePath("/configs/models/llama-13b"));
  DeviceSpec device;
  device.bf16_tflops = 100;
  device.bandwidth_gb_per_s = 1000;
  device.mfu = {{1, 0.5}};
  const auto seconds = [&](int64_t rows) {
    return SliceSeconds(device, *SplitGraph(*TraceModel(config)), 1, DType::kF16, rows);
  };
  const double plain_one = seconds(1), plain_many = seconds(4096);
  config.layer_bits = 4;
  constexpr double d = 5120, ffn = 13824, weights = 4 * d * d + 3 * d * ffn;
  EXPECT_DOUBLE_EQ(plain_one - seconds(1), weights * 1.5 / device.reached_bytes_per_s());
  EXPECT_EQ(seconds(4096), plain_many) << "operations are the same";
}

}  // namespace
}  // namespace lamina
