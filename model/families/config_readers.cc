#include "model/families/config_readers.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace lamina {
namespace {

using nlohmann::json;

// Ranges beyond any published model, which keep a wrong file from asking for absurd memory.
constexpr IntRange kVocab = {1, 1 << 24};
constexpr IntRange kLayers = {1, 4096};
constexpr IntRange kHeads = {1, 4096};
constexpr IntRange kHeadDim = {2, 4096};
constexpr IntRange kPositions = {1, std::numeric_limits<int32_t>::max()};

void ReadScaling(JsonKeys& keys, RopeScaling& scaling) {
  // Older files say "type".
  const std::string_view key = keys.Has("rope_type") ? "rope_type" : "type";
  const std::string type = keys.OptionalString(key).value_or("default");
  if (type == "default") return;
  if (type != "linear" && type != "llama3") {
    keys.Reject(key, "\"default\", \"linear\" or \"llama3\"", StatusCode::kUnimplemented);
    return;
  }
  scaling.factor = keys.Real("factor", kPositiveRange);
  scaling.kind = RopeScaling::Kind::kLinear;
  if (type == "linear") return;
  scaling.kind = RopeScaling::Kind::kLlama3;
  scaling.low_freq_factor = keys.Real("low_freq_factor", kPositiveRange);
  scaling.high_freq_factor = keys.Real("high_freq_factor", kPositiveRange);
  scaling.original_max_positions = keys.Real("original_max_position_embeddings", kPositiveRange);
  if (keys.status().ok() && scaling.high_freq_factor <= scaling.low_freq_factor)
    keys.Reject("high_freq_factor", "more than low_freq_factor");
}

// [num_layers] Whether each layer slides, as newer files list it.
std::vector<bool> ReadLayerTypes(JsonKeys& keys, int num_layers) {
  const json& list = *keys.Find("layer_types");
  std::vector<bool> slides;
  for (const json& type : list.is_array() ? list : json::array()) {
    const auto* const name = type.get_ptr<const json::string_t*>();
    if (name == nullptr || (*name != "sliding_attention" && *name != "full_attention")) break;
    slides.push_back(*name == "sliding_attention");
  }
  if (std::ssize(slides) == num_layers) return slides;
  keys.Reject("layer_types",
              "\"full_attention\" or \"sliding_attention\" for each of " +
                  std::to_string(num_layers) + " layers",
              StatusCode::kUnimplemented);
  return {};
}

}  // namespace

void ReadSizes(JsonKeys& keys, std::string_view intermediate, ModelConfig& config) {
  config.vocab_size = keys.Int("vocab_size", kVocab);
  config.hidden_size = keys.Int("hidden_size", kWidthRange);
  config.intermediate_size = keys.Int(intermediate, kWidthRange);
  config.num_layers = static_cast<int>(keys.Int("num_hidden_layers", kLayers));
  config.num_heads = static_cast<int>(keys.Int("num_attention_heads", kHeads));
  config.num_kv_heads =
      static_cast<int>(keys.OptionalInt("num_key_value_heads", kHeads).value_or(config.num_heads));
  config.max_positions = keys.Int("max_position_embeddings", kPositions);
  if (!keys.status().ok()) return;

  if (config.num_heads % config.num_kv_heads != 0) {
    keys.Reject("num_key_value_heads",
                "a divisor of num_attention_heads = " + std::to_string(config.num_heads));
  }
  // Without a head_dim the heads share hidden_size.
  if (!keys.Has("head_dim") && config.hidden_size % config.num_heads != 0) {
    keys.Reject("num_attention_heads", "a divisor of hidden_size = " +
                                           std::to_string(config.hidden_size) + ", or a head_dim");
  }
  const std::optional<int64_t> head_dim = keys.OptionalInt("head_dim", kHeadDim);
  config.head_dim = static_cast<int>(head_dim.value_or(config.hidden_size / config.num_heads));
  // The rotary embedding takes a head apart into pairs.
  if (config.head_dim % 2 != 0 || config.head_dim > kHeadDim.max) {
    keys.Reject(head_dim ? "head_dim" : "num_attention_heads",
                "even heads of at most " + std::to_string(kHeadDim.max) + ", found " +
                    std::to_string(config.head_dim));
  }
}

void ReadRotary(JsonKeys& keys, ModelConfig& config) {
  if (keys.OptionalReal("partial_rotary_factor", kPositiveRange).value_or(1) != 1)
    keys.Reject("partial_rotary_factor", "1: all of a head is rotated", StatusCode::kUnimplemented);
  config.rope_theta = keys.OptionalReal("rope_theta", kPositiveRange).value_or(config.rope_theta);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json* object = keys.Find(key);
    if (object == nullptr) continue;
    if (!object->is_object()) {
      keys.Reject(key, "an object or null");
      continue;
    }
    JsonKeys nested(*object, keys.where() + ": " + key);
    config.rope_theta =
        nested.OptionalReal("rope_theta", kPositiveRange).value_or(config.rope_theta);
    ReadScaling(nested, config.rope_scaling);
    keys.Keep(nested.status());
  }
}

void RequireOneOf(JsonKeys& keys, std::string_view key,
                  std::initializer_list<std::string_view> known) {
  const std::optional<std::string> value = keys.OptionalString(key);
  if (!value || std::ranges::find(known, *value) != known.end()) return;
  std::string names;
  for (const std::string_view name : known)
    names += (names.empty() ? "\"" : " or \"") + std::string(name) + "\"";
  keys.Reject(key, names, StatusCode::kUnimplemented);
}

void RequireBool(JsonKeys& keys, std::string_view key, bool value) {
  if (keys.OptionalBool(key).value_or(value) != value)
    keys.Reject(key, value ? "true" : "false", StatusCode::kUnimplemented);
}

void ReadWindows(JsonKeys& keys, int64_t absent, const std::function<bool(int layer)>& slides,
                 ModelConfig& config) {
  // OptionalInt takes null for absent, but here null means that there is no window.
  const int64_t window = keys.OptionalInt("sliding_window", kPositions)
                             .value_or(keys.IsNull("sliding_window") ? 0 : absent);
  std::vector<bool> listed;
  if (keys.Has("layer_types")) listed = ReadLayerTypes(keys, config.num_layers);
  // Leaves config.windows empty, which means that all layers attend to all tokens.
  if (window == 0 || !keys.status().ok()) return;
  config.windows.assign(static_cast<size_t>(config.num_layers), 0);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const auto at = static_cast<size_t>(layer);
    if (listed.empty() ? slides(layer) : listed[at]) config.windows[at] = window;
  }
}

}  // namespace lamina
