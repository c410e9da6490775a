#include "model/quantization_config.h"

#include <charconv>
#include <optional>
#include <utility>

namespace lamina {
namespace {

using nlohmann::json;
using Layout = QuantizationConfig::Layout;

constexpr int64_t kMostGrouped = int64_t{1} << 20;
constexpr StatusCode kUnknown = StatusCode::kUnimplemented;

void RequireWord(JsonKeys& keys, std::string_view key, std::string_view word) {
  const std::optional<std::string> found = keys.OptionalString(key);
  if (found && *found != word) keys.Reject(key, "\"" + std::string(word) + "\"", kUnknown);
}

void ParseBits(JsonKeys& keys, std::string_view key, bool eight_too, QuantizationConfig& config) {
  config.bits = static_cast<int>(keys.Int(key, {1, 64}));
  if (config.bits != 4 && !(eight_too && config.bits == 8))
    keys.Reject(key, eight_too ? "4 or 8" : "4", kUnknown);
}

// "group_size": -1 stands for all inputs.
int64_t ParseGroup(JsonKeys& keys, std::string_view key) {
  const int64_t group = keys.Int(key, {-1, kMostGrouped});
  if (group == 0) keys.Reject(key, "a number of inputs, or -1 for all of them");
  return group < 0 ? 0 : group;
}

// [outputs, inputs], or "128x128".
void ParseBlock(JsonKeys& keys, std::string_view key, QuantizationConfig& config) {
  std::vector<int64_t> sizes;
  if (const json* block = keys.Find(key); block != nullptr && block->is_string()) {
    const auto text = block->get<std::string>();
    const char* const end = text.data() + text.size();
    int64_t outputs = 0, inputs = 0;
    const auto [cross, error] = std::from_chars(text.data(), end, outputs);
    if (error == std::errc() && cross != end && *cross == 'x' &&
        std::from_chars(cross + 1, end, inputs).ptr == end)
      sizes = {outputs, inputs};
  } else {
    sizes = keys.IntOrList(key, {1, kMostGrouped});
  }
  if (sizes.size() != 2 || sizes[0] < 1 || sizes[1] < 1 || sizes[0] > kMostGrouped ||
      sizes[1] > kMostGrouped) {
    keys.Reject(key, "two sizes, such as [128, 128]");
    return;
  }
  config.scale_outputs = sizes[0];
  config.scale_inputs = sizes[1];
}

void ParseStrategy(JsonKeys& keys, QuantizationConfig& config) {
  const std::string strategy =
      keys.OptionalString("strategy").value_or(keys.Has("group_size") ? "group" : "tensor");
  if (strategy == "tensor") {
    config.scale_outputs = 0;
  } else if (strategy == "group") {
    config.scale_inputs = ParseGroup(keys, "group_size");
  } else if (strategy == "block") {
    ParseBlock(keys, "block_structure", config);
  } else if (strategy != "channel") {
    keys.Reject("strategy", R"("tensor", "channel", "group" or "block")", kUnknown);
  }
}

void ParseCompressedTensors(JsonKeys& keys, QuantizationConfig& config) {
  const std::string format = keys.OptionalString("format").value_or("");
  const bool floats = format == "float-quantized";
  if (format != "pack-quantized" && format != "int-quantized" && !floats) {
    keys.Reject("format", R"("pack-quantized", "int-quantized" or "float-quantized")", kUnknown);
    return;
  }
  config.layout = format == "pack-quantized" ? Layout::kPacked : Layout::kScaled;
  const json* groups = keys.Find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty()) {
    keys.Reject("config_groups", "an object with one group or more");
    return;
  }
  const json* weights = nullptr;
  for (const auto& [name, group] : groups->items()) {
    if (!group.is_object() || !group.contains("weights") || !group["weights"].is_object()) {
      keys.Reject("config_groups", "groups with \"weights\", an object");
      return;
    }
    // Layers are read by one description; which group a layer is in is not looked up.
    if (weights != nullptr && *weights != group["weights"]) {
      keys.Reject("config_groups", "groups whose \"weights\" are equal", kUnknown);
      return;
    }
    weights = &group["weights"];
  }
  JsonKeys of_weights(*weights, keys.where() + ": config_groups: weights");
  const std::string type = of_weights.OptionalString("type").value_or("int");
  if (type != (floats ? "float" : "int"))
    of_weights.Reject("type", floats ? "\"float\"" : "\"int\"", kUnknown);
  ParseBits(of_weights, "num_bits", true, config);
  if (config.layout == Layout::kScaled && config.bits != 8)
    of_weights.Reject("num_bits", "8", kUnknown);
  config.symmetric = of_weights.OptionalBool("symmetric").value_or(true);
  ParseStrategy(of_weights, config);
  keys.Keep(of_weights.status());
}

}  // namespace

double QuantizationConfig::BitsPerElement() const {
  const double scale_bits = layout == Layout::kMxfp4 ? 8 : 16;
  const double per_scale = scale_bits + (symmetric ? 0 : bits);
  const double elements = static_cast<double>(scale_outputs) * static_cast<double>(scale_inputs);
  // Scales of a whole output or of the whole matrix are few.
  return bits + (elements > 0 ? per_scale / elements : 0);
}

QuantizationConfig QuantizationConfig::Parse(JsonKeys& keys) {
  QuantizationConfig config;
  const std::string method = keys.OptionalString("quant_method").value_or("");
  if (method == "compressed-tensors") {
    ParseCompressedTensors(keys, config);
  } else if (method == "fp8") {
    config.bits = 8;
    config.layout = keys.Has("weight_block_size") ? Layout::kScaleInverse : Layout::kScaled;
    config.scale_outputs = 0;
    if (keys.Has("weight_block_size")) ParseBlock(keys, "weight_block_size", config);
    RequireWord(keys, "fmt", "e4m3");
  } else if (method == "awq") {
    config.layout = Layout::kAwq;
    ParseBits(keys, "bits", false, config);
    config.scale_inputs = ParseGroup(keys, "group_size");
    config.symmetric = false;  // zero points are always there
    RequireWord(keys, "version", "gemm");
  } else if (method == "gptq") {
    config.layout = Layout::kGptq;
    ParseBits(keys, "bits", true, config);
    config.scale_inputs = ParseGroup(keys, "group_size");
    config.symmetric = false;
    const std::string format = keys.OptionalString("checkpoint_format").value_or("gptq");
    config.zeros_minus_one = format == "gptq";
    if (format != "gptq" && format != "gptq_v2")
      keys.Reject("checkpoint_format", R"("gptq" or "gptq_v2")", kUnknown);
  } else if (method == "mxfp4") {
    config.layout = Layout::kMxfp4;
    config.scale_inputs = 32;
  } else {
    keys.Reject("quant_method", R"("compressed-tensors", "fp8", "awq", "gptq" or "mxfp4")",
                kUnknown);
  }
  return config;
}

}  // namespace lamina
