#include "model/families/config_readers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace lamina {
namespace {

using nlohmann::json;

// Ranges beyond any published model, which keep a wrong file from asking for absurd memory.
constexpr IntRange kVocab = {1, 1 << 24};
constexpr IntRange kLayers = {1, 4096};
constexpr IntRange kHeads = {1, 4096};
constexpr IntRange kHeadDim = {2, 4096};

// Experts of all layers together. Each is three weights of the graph.
constexpr int64_t kMaxExperts = 65'536;

constexpr const char* kOriginalPositions = "original_max_position_embeddings";

// [size] The numbers that LongRoPE divides each frequency by.
std::vector<double> ReadDivisors(JsonKeys& keys, const char* key, int size) {
  const json* const list = keys.Find(key);
  std::vector<double> divisors;
  for (const json& entry : list != nullptr && list->is_array() ? *list : json::array()) {
    const double divisor = entry.is_number() ? entry.get<double>() : 0;
    if (!(divisor >= kPositiveRange.min && divisor <= kPositiveRange.max)) break;
    divisors.push_back(divisor);
  }
  if (std::ssize(divisors) != size)
    keys.Reject(key, std::to_string(size) + " positive numbers, one for each pair of a head");
  return divisors;
}

void ReadLlama3(JsonKeys& keys, RopeScaling& scaling) {
  scaling.kind = RopeScaling::Kind::kLlama3;
  scaling.factor = keys.Real("factor", kPositiveRange);
  scaling.low_freq_factor = keys.Real("low_freq_factor", kPositiveRange);
  scaling.high_freq_factor = keys.Real("high_freq_factor", kPositiveRange);
  scaling.original_max_positions = keys.Real(kOriginalPositions, kPositiveRange);
  if (keys.status().ok() && scaling.high_freq_factor <= scaling.low_freq_factor)
    keys.Reject("high_freq_factor", "more than low_freq_factor");
}

// What YaRN multiplies q and k by, as the paper suggests (section 3.4), unless the file has a say.
double YarnAttentionFactor(JsonKeys& keys, double factor) {
  const auto of = [factor](double scale) {
    return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
  };
  const double scale = keys.OptionalReal("mscale", {0, 1e6}).value_or(0),
               over = keys.OptionalReal("mscale_all_dim", {0, 1e6}).value_or(0);
  const double suggested = scale > 0 && over > 0 ? of(scale) / of(over) : of(1);
  return keys.OptionalReal("attention_factor", kPositiveRange).value_or(suggested);
}

void ReadYarn(JsonKeys& keys, const ModelConfig& config, RopeScaling& scaling) {
  scaling.kind = RopeScaling::Kind::kYarn;
  scaling.factor = keys.Real("factor", kPositiveRange);
  scaling.original_max_positions = keys.OptionalReal(kOriginalPositions, kPositiveRange)
                                       .value_or(static_cast<double>(config.max_positions));
  scaling.beta_fast = keys.OptionalReal("beta_fast", kPositiveRange).value_or(32);
  scaling.beta_slow = keys.OptionalReal("beta_slow", kPositiveRange).value_or(1);
  scaling.truncate = keys.OptionalBool("truncate").value_or(true);
  scaling.attention_factor = YarnAttentionFactor(keys, scaling.factor);
}

// LongRoPE has one list of divisors for sequences of up to the original length and one for longer
// ones. Keys in the cache cannot change from the one to the other while a sequence grows, so the
// list is that of the longest sequence, max_position_embeddings.
void ReadLongRope(JsonKeys& keys, JsonKeys& top, const ModelConfig& config, RopeScaling& scaling) {
  scaling.kind = RopeScaling::Kind::kLongRope;
  for (const char* key : {"short_mscale", "long_mscale"}) {
    if (keys.Has(key)) keys.Reject(key, "no such key", StatusCode::kUnimplemented);
  }
  const auto longest = static_cast<double>(config.max_positions);
  JsonKeys& has_original = keys.Has(kOriginalPositions) ? keys : top;
  const std::optional<double> original =
      has_original.OptionalReal(kOriginalPositions, {2, kPositiveRange.max});
  scaling.original_max_positions = original.value_or(longest);
  const bool is_long = longest > scaling.original_max_positions;
  scaling.divisors =
      ReadDivisors(keys, is_long ? "long_factor" : "short_factor", config.rotary_dim() / 2);
  const double factor =
      original ? longest / *original : keys.OptionalReal("factor", kPositiveRange).value_or(1);
  const double suggested =
      factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(scaling.original_max_positions));
  scaling.attention_factor =
      keys.OptionalReal("attention_factor", kPositiveRange).value_or(suggested);
}

// `keys` are those of rope_scaling or rope_parameters, `top` those of the file.
void ReadScaling(JsonKeys& keys, JsonKeys& top, ModelConfig& config) {
  RopeScaling& scaling = config.rope_scaling;
  // Older files say "type".
  const std::string_view key = keys.Has("rope_type") ? "rope_type" : "type";
  const std::string type = keys.OptionalString(key).value_or("default");
  if (type == "linear") {
    scaling.kind = RopeScaling::Kind::kLinear;
    scaling.factor = keys.Real("factor", kPositiveRange);
  } else if (type == "llama3") {
    ReadLlama3(keys, scaling);
  } else if (type == "yarn") {
    ReadYarn(keys, config, scaling);
  } else if (type == "longrope" || type == "su") {  // Phi-3 called it so at first
    ReadLongRope(keys, top, config, scaling);
  } else if (type != "default" && type != "dynamic") {
    // "dynamic" rescales sequences that are longer than max_position_embeddings, and those are
    // refused.
    keys.Reject(key, "\"default\", \"linear\", \"llama3\", \"yarn\", \"longrope\" or \"dynamic\"",
                StatusCode::kUnimplemented);
  }
}

// Reads partial_rotary_factor, which stands in the file or, in newer ones, in rope_parameters.
void ReadRotaryPart(JsonKeys& keys, std::optional<double> absent, ModelConfig& config) {
  constexpr const char* kKey = "partial_rotary_factor";
  const double part = keys.OptionalReal(kKey, kPositiveRange).value_or(config.rotary_part);
  if (!absent && part != 1) {
    keys.Reject(kKey, "1: all of a head is rotated", StatusCode::kUnimplemented);
    return;
  }
  config.rotary_part = part;
  const int dim = part <= 1 ? config.rotary_dim() : 1;
  if (dim < 2 || dim % 2 != 0) {
    keys.Reject(kKey, "a part of " + std::to_string(config.head_dim) +
                          " elements that is an even number of them");
  }
}

}  // namespace

std::vector<bool> ReadLayerTypes(JsonKeys& keys, int num_layers, std::string_view type) {
  const json& list = *keys.Find("layer_types");
  std::vector<bool> are_of_type;
  for (const json& entry : list.is_array() ? list : json::array()) {
    const auto* const name = entry.get_ptr<const json::string_t*>();
    if (name == nullptr || (*name != type && *name != "full_attention")) break;
    are_of_type.push_back(*name == type);
  }
  if (std::ssize(are_of_type) == num_layers) return are_of_type;
  keys.Reject("layer_types",
              "\"full_attention\" or \"" + std::string(type) + "\" for each of " +
                  std::to_string(num_layers) + " layers",
              StatusCode::kUnimplemented);
  return {};
}

void ReadSizes(JsonKeys& keys, std::string_view intermediate, ModelConfig& config) {
  config.vocab_size = keys.Int("vocab_size", kVocab);
  config.hidden_size = keys.Int("hidden_size", kWidthRange);
  config.intermediate_size = keys.Int(intermediate, kWidthRange);
  config.num_layers = static_cast<int>(keys.Int("num_hidden_layers", kLayers));
  config.num_heads = static_cast<int>(keys.Int("num_attention_heads", kHeads));
  config.num_kv_heads =
      static_cast<int>(keys.OptionalInt("num_key_value_heads", kHeads).value_or(config.num_heads));
  config.max_positions = keys.Int("max_position_embeddings", kPositionRange);
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

void ReadRotary(JsonKeys& keys, ModelConfig& config, std::optional<double> part_if_absent) {
  if (!keys.status().ok()) return;  // what follows depends on the sizes
  config.rotary_part = part_if_absent.value_or(1);
  ReadRotaryPart(keys, part_if_absent, config);
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
    ReadRotaryPart(nested, part_if_absent, config);
    if (nested.status().ok()) ReadScaling(nested, keys, config);
    keys.Keep(nested.status());
  }
  if (config.rope_scaling.kind == RopeScaling::Kind::kYarn && config.rope_theta <= 1)
    keys.Reject("rope_theta", "more than 1, for yarn");
}

bool ReadRotaryByType(JsonKeys& keys, ModelConfig& config) {
  const json* const by_type = keys.Find("rope_parameters");
  if (by_type == nullptr || !by_type->is_object() || !by_type->contains("full_attention"))
    return false;
  JsonKeys types(*by_type, keys.where() + ": rope_parameters");
  const auto read = [&](const char* type) {
    json of_type = json::object();
    if (const json* const found = types.Find(type)) of_type["rope_parameters"] = *found;
    JsonKeys nested(of_type, types.where() + ": " + type);
    ReadRotary(nested, config);
    types.Keep(nested.status());
  };
  std::swap(config.rope_theta, config.local_rope_theta);
  read("sliding_attention");
  std::swap(config.rope_theta, config.local_rope_theta);
  if (config.rope_scaling.kind != RopeScaling::Kind::kNone)
    types.Reject("sliding_attention", "the rope_type \"default\"", StatusCode::kUnimplemented);
  read("full_attention");
  keys.Keep(types.status());
  return true;
}

void ReadRotatedLayers(JsonKeys& keys, ModelConfig& config) {
  const std::vector<int64_t> listed = keys.IntOrList("no_rope_layers", {0, 1});
  const int64_t interval = keys.OptionalInt("no_rope_layer_interval", {1, 1 << 20}).value_or(4);
  if (!keys.status().ok()) return;
  for (const int64_t is_rotated : listed) config.rotated_layers.push_back(is_rotated != 0);
  for (int layer = 0; listed.empty() && layer < config.num_layers; ++layer)
    config.rotated_layers.push_back((layer + 1) % interval != 0);
  if (std::ssize(config.rotated_layers) == config.num_layers) return;
  keys.Reject("no_rope_layers", "0 or 1 for each of " + std::to_string(config.num_layers) +
                                    " layers, or an empty list");
}

void ReadExperts(JsonKeys& keys, std::string_view count, ModelConfig& config) {
  config.num_experts = static_cast<int>(keys.Int(count, {1, 1024}));
  config.experts_per_token = static_cast<int>(keys.Int("num_experts_per_tok", {1, 1024}));
  if (int64_t{config.num_experts} * config.num_layers > kMaxExperts)
    keys.Reject(count, "at most " + std::to_string(kMaxExperts) + " in all layers");
  if (config.experts_per_token > config.num_experts) {
    keys.Reject("num_experts_per_tok",
                "at most " + std::string(count) + " = " + std::to_string(config.num_experts));
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
  const int64_t window = keys.OptionalInt("sliding_window", kPositionRange)
                             .value_or(keys.IsNull("sliding_window") ? 0 : absent);
  std::vector<bool> listed;
  if (keys.Has("layer_types"))
    listed = ReadLayerTypes(keys, config.num_layers, "sliding_attention");
  // Leaves config.windows empty, which means that all layers attend to all tokens.
  if (window == 0 || !keys.status().ok()) return;
  config.windows.resize(static_cast<size_t>(config.num_layers));
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const auto at = static_cast<size_t>(layer);
    if (listed.empty() ? slides(layer) : listed[at]) config.windows[at] = {window};
  }
}

}  // namespace lamina
