#include "model/gguf_config.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_keys.h"
#include "gguf/dequantize.h"
#include "gguf/gguf_keys.h"
#include "gguf/gguf_vocabulary.h"
#include "model/families/config_readers.h"

namespace lamina {
namespace {

using nlohmann::json;

// What config.json will be checked for again, with narrower ranges.
constexpr IntRange kAnyCount = {0, 1 << 30};

struct GgufArchitecture {
  std::string_view name;  // general.architecture
  const char* hugging_face;
};
constexpr GgufArchitecture kGgufArchitectures[] = {
    {"llama", "LlamaForCausalLM"},       {"qwen2", "Qwen2ForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},       {"qwen2moe", "Qwen2MoeForCausalLM"},
    {"qwen3moe", "Qwen3MoeForCausalLM"}, {"gemma2", "Gemma2ForCausalLM"},
    {"gemma3", "Gemma3ForCausalLM"},     {"phi3", "Phi3ForCausalLM"},
    {"olmo2", "Olmo2ForCausalLM"},       {"granite", "GraniteForCausalLM"},
    {"smollm3", "SmolLM3ForCausalLM"},   {"gpt-oss", "GptOssForCausalLM"},
};

std::string GgufArchitectureNames() {
  std::string names;
  for (const GgufArchitecture& known : kGgufArchitectures) {
    if (!names.empty()) names += ", ";
    names += known.name;
  }
  return names;
}

// The numbers of a tensor that must be `count` of type F32.
Result<std::vector<float>> FloatsOf(const GgufModel& file, const GgufTensor& tensor,
                                    int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  if (tensor.type != static_cast<uint32_t>(GgmlType::kF32) || tensor.shape.size() != 1 ||
      tensor.width() != count) {
    return InvalidArgument(
        fmt::format("{}: expected {} numbers of type F32 in the tensor {}, found {} of {}",
                    file.path(), count, tensor.name, tensor.width(), tensor.info().name));
  }
  Dequantize(GgmlType::kF32, tensor.data.data(), count, values.data());
  return values;
}

// One file's keys, on their way into config.json.
class GgufConfig {
 public:
  explicit GgufConfig(const GgufModel& file)
      : file_(file), object_(GgufKeys(file)), keys_(object_, file.path()) {}

  Result<json> Read() {
    name_ = keys_.OptionalString("general.architecture").value_or("");
    for (const GgufArchitecture& known : kGgufArchitectures) {
      if (known.name == name_) config_["architectures"] = {known.hugging_face};
    }
    if (config_.empty()) {
      keys_.Reject("general.architecture", "one of " + GgufArchitectureNames(),
                   StatusCode::kUnimplemented);
      return keys_.status();
    }
    config_["model_type"] = name_;
    ReadLayers();
    ReadHeads();
    ReadRope();
    ReadTensors();
    if (name_ == "llama") ReadExperts("MixtralForCausalLM");
    if (name_ == "qwen2moe" || name_ == "qwen3moe") ReadQwenMoe();
    if (name_ == "gpt-oss") ReadGptOss();
    if (name_ == "gemma2" || name_ == "gemma3") ReadGemma();
    if (name_ == "phi3") ReadPhi3();
    if (name_ == "granite") ReadGranite();
    LAMINA_RETURN_IF_ERROR(keys_.status());
    LAMINA_RETURN_IF_ERROR(ReadSpecialTokens());
    return std::move(config_);
  }

 private:
  // "llama.block_count"
  std::string Key(const char* name) const { return name_ + "." + name; }
  bool Has(const std::string& tensor) const { return file_.Tensor(tensor) != nullptr; }

  void ReadLayers() {
    config_["num_hidden_layers"] = keys_.Int(Key("block_count"), kAnyCount);
    config_["max_position_embeddings"] = keys_.Int(Key("context_length"), kAnyCount);
    config_["hidden_size"] = keys_.Int(Key("embedding_length"), kAnyCount);
    config_["intermediate_size"] = OneForAllLayers(Key("feed_forward_length"));
    config_["rms_norm_eps"] = keys_.Real(Key("attention.layer_norm_rms_epsilon"), {0, 1});
  }

  // Some keys may be lists with a number for each layer. Lamina has the same for all.
  int64_t OneForAllLayers(const std::string& key) {
    const std::vector<int64_t> numbers = keys_.IntOrList(key, kAnyCount);
    if (numbers.empty()) {
      keys_.Reject(key, "a number");
      return 0;
    }
    for (const int64_t number : numbers) {
      if (number != numbers.front())
        keys_.Reject(key, "the same number for all layers", StatusCode::kUnimplemented);
    }
    return numbers.front();
  }

  void ReadHeads() {
    const int64_t heads = OneForAllLayers(Key("attention.head_count"));
    config_["num_attention_heads"] = heads;
    if (keys_.Has(Key("attention.head_count_kv")))
      config_["num_key_value_heads"] = OneForAllLayers(Key("attention.head_count_kv"));
    const auto hidden = config_["hidden_size"].get<int64_t>();
    const std::optional<int64_t> head_dim =
        keys_.OptionalInt(Key("attention.key_length"), kAnyCount);
    if (heads > 0) config_["head_dim"] = head_dim.value_or(hidden / heads);
    if (!head_dim) return;
    const std::string value = Key("attention.value_length");
    if (keys_.OptionalInt(value, kAnyCount).value_or(*head_dim) != *head_dim)
      keys_.Reject(value, "attention.key_length", StatusCode::kUnimplemented);
  }

  void ReadRope() {
    config_["rope_theta"] =
        keys_.OptionalReal(Key("rope.freq_base"), kPositiveRange).value_or(10000);
    const std::string rotated = Key("rope.dimension_count");
    const std::optional<int64_t> count = keys_.OptionalInt(rotated, kAnyCount);
    if (count && name_ == "phi3" && config_.value("head_dim", int64_t{0}) > 0)
      config_["partial_rotary_factor"] =
          static_cast<double>(*count) / config_["head_dim"].get<double>();
    else if (count && config_.contains("head_dim") && config_["head_dim"] != *count)
      keys_.Reject(rotated, "all of a head: " + config_["head_dim"].dump(),
                   StatusCode::kUnimplemented);
    const std::string type = Key("rope.scaling.type");
    if (name_ == "gpt-oss" && keys_.OptionalString(type) == "yarn") {
      // No key says the rest, which is the same for all models of this kind.
      config_["rope_scaling"] = {
          {"rope_type", "yarn"},
          {"factor", keys_.Real(Key("rope.scaling.factor"), kPositiveRange)},
          {"original_max_position_embeddings",
           keys_.Real(Key("rope.scaling.original_context_length"), kPositiveRange)},
          {"beta_fast", 32},
          {"beta_slow", 1},
          {"truncate", false}};
    } else if (keys_.OptionalString(type).value_or("none") != "none") {
      RequireOneOf(keys_, type, {"none", "linear"});
      config_["rope_scaling"] = {
          {"rope_type", "linear"},
          {"factor", keys_.Real(Key("rope.scaling.factor"), kPositiveRange)}};
    } else if (const auto factor = keys_.OptionalReal(Key("rope.scale_linear"), kPositiveRange)) {
      config_["rope_scaling"] = {{"rope_type", "linear"}, {"factor", *factor}};
    }
  }

  void ReadTensors() {
    const GgufTensor* const table = file_.Tensor("token_embd.weight");
    if (table == nullptr || table->shape.size() != 2) {
      keys_.Keep(InvalidArgument(file_.path() +
                                 ": expected a tensor token_embd.weight of two dimensions; is this "
                                 "a file of a whole model?"));
      return;
    }
    config_["vocab_size"] = table->shape[0];
    config_["tie_word_embeddings"] = !Has("output.weight");
    if (name_ == "llama") {
      config_["attention_bias"] = Has("blk.0.attn_q.bias");
      config_["mlp_bias"] = Has("blk.0.ffn_up.bias");
    }
    config_["dtype"] = MostFrequentType();
  }

  // The dtype that weights have in memory: that of most elements. Quantized ones, where they are
  // dequantized, become fp16, whose precision is far beyond theirs.
  const char* MostFrequentType() const {
    int64_t num_f32 = 0, num_bf16 = 0, num_others = 0;
    for (int layer = 0; layer < config_["num_hidden_layers"].get<int64_t>(); ++layer) {
      const GgufTensor* const matrix =
          file_.Tensor(fmt::format("blk.{}.attn_output.weight", layer));
      if (matrix == nullptr) break;
      const bool is_f32 = matrix->type == static_cast<uint32_t>(GgmlType::kF32),
                 is_bf16 = matrix->type == static_cast<uint32_t>(GgmlType::kBF16);
      ++(is_f32 ? num_f32 : is_bf16 ? num_bf16 : num_others);
    }
    return num_others > 0 || num_f32 + num_bf16 == 0 ? "float16"
           : num_f32 > num_bf16                      ? "float32"
                                                     : "bfloat16";
  }

  // Mixtral is a llama with experts there.
  void ReadExperts(const char* architecture) {
    const int64_t experts = keys_.OptionalInt(Key("expert_count"), kAnyCount).value_or(0);
    if (experts == 0) return;
    config_["architectures"] = {architecture};
    config_["num_local_experts"] = experts;
    config_["num_experts_per_tok"] = keys_.Int(Key("expert_used_count"), kAnyCount);
  }

  // Layers without a router have one MLP.
  void ReadQwenMoe() {
    config_["num_experts"] = keys_.Int(Key("expert_count"), kAnyCount);
    config_["num_experts_per_tok"] = keys_.Int(Key("expert_used_count"), kAnyCount);
    config_["moe_intermediate_size"] = keys_.Int(Key("expert_feed_forward_length"), kAnyCount);
    // No key says it of these.
    config_["norm_topk_prob"] = name_ == "qwen3moe";
    if (name_ == "qwen2moe")
      config_["shared_expert_intermediate_size"] =
          keys_.Int(Key("expert_shared_feed_forward_length"), kAnyCount);
    json dense = json::array();
    for (int layer = 0; layer < config_["num_hidden_layers"].get<int64_t>(); ++layer) {
      // A file that lacks everything of a layer is refused later, and need not be long.
      if (!Has(fmt::format("blk.{}.attn_norm.weight", layer))) break;
      if (!Has(fmt::format("blk.{}.ffn_gate_inp.weight", layer))) dense.push_back(layer);
    }
    config_["mlp_only_layers"] = std::move(dense);
  }

  void ReadWindow() {
    // Converters write 0 for none.
    const int64_t window =
        keys_.OptionalInt(Key("attention.sliding_window"), kAnyCount).value_or(0);
    if (window > 0) config_["sliding_window"] = window;
  }

  void ReadGptOss() {
    ReadExperts("GptOssForCausalLM");
    config_["intermediate_size"] = keys_.Int(Key("expert_feed_forward_length"), kAnyCount);
    ReadWindow();
  }

  void ReadPhi3() {
    ReadWindow();
    const std::optional<int64_t> original =
        keys_.OptionalInt(Key("rope.scaling.original_context_length"), kAnyCount);
    if (original) config_["original_max_position_embeddings"] = *original;
    json divisors;
    for (const auto& [tensor, key] : {std::pair("rope_factors_short.weight", "short_factor"),
                                      std::pair("rope_factors_long.weight", "long_factor")}) {
      const GgufTensor* const found = file_.Tensor(tensor);
      if (found == nullptr) continue;
      const Result<std::vector<float>> values = FloatsOf(file_, *found, found->width());
      if (!values.ok()) return keys_.Keep(values.status());
      divisors[key] = *values;
    }
    if (divisors.empty()) return;
    divisors["rope_type"] = "longrope";
    if (const auto factor = keys_.OptionalReal(Key("rope.scaling.attn_factor"), kPositiveRange))
      divisors["attention_factor"] = *factor;
    config_["rope_scaling"] = std::move(divisors);
  }

  void ReadGranite() {
    for (const auto& [from, to] : {std::pair("attention.scale", "attention_multiplier"),
                                   std::pair("embedding_scale", "embedding_multiplier"),
                                   std::pair("residual_scale", "residual_multiplier"),
                                   std::pair("logit_scale", "logits_scaling")})
      config_[to] = keys_.OptionalReal(Key(from), kPositiveRange).value_or(1);
  }

  void ReadGemma() {
    const auto copy = [&](const char* from, const char* to) {
      if (const auto value = keys_.OptionalReal(Key(from), {0, 1e12})) config_[to] = *value;
    };
    copy("attn_logit_softcapping", "attn_logit_softcapping");
    copy("final_logit_softcapping", "final_logit_softcapping");
    ReadWindow();
    if (name_ == "gemma3") {
      config_["sliding_window_pattern"] =
          keys_.OptionalInt(Key("attention.sliding_window_pattern"), {1, 1 << 20}).value_or(6);
      config_["rope_local_base_freq"] =
          keys_.OptionalReal(Key("rope.freq_base_swa"), kPositiveRange).value_or(10000);
    }
    // No key says it. The models of 27 billion parameters, known by their layers, have the width
    // that each head would have if all of them shared the hidden size.
    const int kLayersOf27B = name_ == "gemma2" ? 46 : 62;
    const auto heads = config_["num_attention_heads"].get<int64_t>();
    if (heads <= 0) return;
    config_["query_pre_attn_scalar"] = config_["num_hidden_layers"] == kLayersOf27B
                                           ? config_["hidden_size"].get<int64_t>() / heads
                                           : config_["head_dim"].get<int64_t>();
  }

  Status ReadSpecialTokens() {
    const Result<GgufVocabulary> vocabulary = GgufVocabulary::Read(file_);
    if (vocabulary.status().code() == StatusCode::kNotFound) return OkStatus();
    LAMINA_RETURN_IF_ERROR(vocabulary.status());
    if (vocabulary->bos) config_["bos_token_id"] = *vocabulary->bos;
    json eos = json::array();
    if (vocabulary->eos) eos.push_back(*vocabulary->eos);
    for (const TokenId id : vocabulary->further_eos) eos.push_back(id);
    if (!eos.empty()) config_["eos_token_id"] = std::move(eos);
    return OkStatus();
  }

  const GgufModel& file_;
  const json object_;
  JsonKeys keys_;
  std::string name_;  // of the architecture
  json config_ = json::object();
};

bool IsPlain(const GgufTensor& tensor) { return tensor.info().block_elements == 1; }

// Bits per element of the matrices whose names are `wanted`. 0 if all of them are plain.
template <typename Wanted>
double QuantizedBits(const GgufModel& file, Wanted wanted) {
  double elements = 0, bytes = 0;
  bool any_quantized = false;
  for (const auto& [name, tensor] : file.tensors()) {
    if (tensor->shape.size() < 2 || !wanted(name)) continue;
    elements += static_cast<double>(tensor->num_rows()) * static_cast<double>(tensor->width());
    bytes += static_cast<double>(tensor->data.size());
    any_quantized = any_quantized || !IsPlain(*tensor);
  }
  return any_quantized ? 8 * bytes / elements : 0;
}

}  // namespace

Result<json> ConfigOfGguf(const GgufModel& file) { return GgufConfig(file).Read(); }

double LayerBitsOf(const GgufModel& file) {
  return QuantizedBits(file, [](std::string_view name) { return name.starts_with("blk."); });
}

double HeadBitsOf(const GgufModel& file) {
  const std::string_view head =
      file.Tensor("output.weight") != nullptr ? "output.weight" : "token_embd.weight";
  return QuantizedBits(file, [head](std::string_view name) { return name == head; });
}

Result<std::vector<float>> RopeDivisorsOf(const GgufModel& file, int head_dim) {
  const GgufTensor* const tensor = file.Tensor("rope_freqs.weight");
  if (tensor == nullptr) return std::vector<float>();
  LAMINA_ASSIGN_OR_RETURN(std::vector<float> divisors, FloatsOf(file, *tensor, head_dim / 2));
  for (const float divisor : divisors) {
    if (!(divisor >= kPositiveRange.min && divisor <= kPositiveRange.max))
      return InvalidArgument(file.path() +
                             ": the tensor rope_freqs.weight has a number that is not positive");
  }
  return divisors;
}

}  // namespace lamina
