#include "model/model_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "base/json_keys.h"
#include "base/text_file.h"
#include "gguf/gguf_model.h"
#include "model/exported/imported_model.h"
#include "model/families/registry.h"
#include "model/gguf_config.h"

namespace lamina {
namespace {

using nlohmann::json;

Result<DType> ParseDType(JsonKeys& keys) {
  // transformers renamed "torch_dtype" to "dtype"; a file has the one or the other.
  const std::string_view key = keys.Has("dtype") ? "dtype" : "torch_dtype";
  const std::string name = keys.OptionalString(key).value_or("bfloat16");
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (name == DTypeName(dtype)) return dtype;
  }
  keys.Reject(key, "\"bfloat16\", \"float16\" or \"float32\"", StatusCode::kUnimplemented);
  return keys.status();
}

// Returns the first entry of "architectures". An architecture that was imported needs no forward
// code, so any name will do.
std::string ParseArchitecture(JsonKeys& keys, bool imported) {
  const json* list = keys.Find("architectures");
  if (list == nullptr || !list->is_array() || list->empty() || !list->front().is_string()) {
    keys.Reject("architectures", "a list with the name of one of these: " + ArchitectureNames());
    return "";
  }
  std::string name = list->front().get<std::string>();
  if (!imported && FindArchitecture(name) == nullptr) {
    const std::string_view reason = WhyNoForwardCode(name);
    keys.Reject("architectures",
                "one that has forward code: " + ArchitectureNames() + "; " +
                    (reason.empty() ? "scripts/export_model.py can export another one"
                                    : name + " has none: " + std::string(reason)),
                StatusCode::kUnimplemented);
  }
  return name;
}

void ParseSpecialTokens(JsonKeys& keys, ModelConfig& config) {
  const IntRange ids = {0, config.vocab_size - 1};
  if (const std::optional<int64_t> bos = keys.OptionalInt("bos_token_id", ids);
      // config.json is read first and has the say.
      bos && !config.bos_token) {
    config.bos_token = static_cast<TokenId>(*bos);
  }
  for (const int64_t id : keys.IntOrList("eos_token_id", ids)) {
    const auto token = static_cast<TokenId>(id);
    const std::vector<TokenId>& known = config.eos_tokens;
    if (std::find(known.begin(), known.end(), token) == known.end())
      config.eos_tokens.push_back(token);
  }
}

// Reads what the architecture's family says in config.json.
Status ReadFamily(JsonKeys& keys, ModelConfig& config) {
  const Architecture& architecture = *FindArchitecture(config.architecture);
  if (architecture.text_defaults.empty()) {
    architecture.read(keys, config);
    return keys.status();
  }
  const json* const text = keys.Find("text_config");
  if (text == nullptr || !text->is_object()) {
    keys.Reject("text_config", "an object with the keys of the language model");
    return keys.status();
  }
  json filled = json::parse(architecture.text_defaults);
  filled.update(*text);
  JsonKeys of_text(filled, keys.where() + ": text_config");
  architecture.read(of_text, config);
  LAMINA_RETURN_IF_ERROR(of_text.status());
  config.model_type = of_text.OptionalString("model_type").value_or(config.model_type);
  ParseSpecialTokens(of_text, config);
  return of_text.status();
}

void ParseGeneration(JsonKeys& keys, ModelConfig::Generation& generation) {
  const auto real = [&keys](std::string_view key, RealRange range) -> std::optional<float> {
    const std::optional<double> number = keys.OptionalReal(key, range);
    return number ? std::optional<float>(static_cast<float>(*number)) : std::nullopt;
  };
  generation.temperature = real("temperature", {0, 1e6});
  // The range has to include its ends. A top_p of 0 is refused below, as it would leave no token to
  // sample.
  generation.top_p = real("top_p", {0, 1});
  if (generation.top_p == 0)
    keys.Reject("top_p", "a number above 0, and at most 1: correct the file, or leave the key out");
  generation.min_p = real("min_p", {0, 1});
  generation.repetition_penalty = real("repetition_penalty", {1e-6, 1e6});
  if (const std::optional<int64_t> top_k =
          keys.OptionalInt("top_k", {-1, std::numeric_limits<int32_t>::max()}))
    generation.top_k = static_cast<int32_t>(*top_k);
}

Result<ModelConfig> LoadFolder(const std::string& dir) {
  ModelConfig::Files files;
  LAMINA_ASSIGN_OR_RETURN(files.config, ReadTextFile(dir + "/config.json"));
  // A file that cannot be looked at is as good as absent.
  std::error_code ignored;
  for (const auto& [name, text] : {std::pair("generation_config.json", &files.generation),
                                   {kImportedGraphFile, &files.graph}}) {
    const std::string path = dir + "/" + name;
    if (!std::filesystem::exists(path, ignored)) continue;
    LAMINA_ASSIGN_OR_RETURN(*text, ReadTextFile(path));
  }
  return ModelConfig::Parse(files, dir);
}

Result<ModelConfig> LoadGgufConfig(const std::string& path) {
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<GgufModel> file, GgufModel::Open(path));
  LAMINA_ASSIGN_OR_RETURN(const json described, ConfigOfGguf(*file));
  ModelConfig::Files files;
  files.config = described.dump();
  files.config_name = ", as a config.json";
  LAMINA_ASSIGN_OR_RETURN(ModelConfig config, ModelConfig::Parse(files, path));
  config.layer_bits = LayerBitsOf(*file);
  config.head_bits = HeadBitsOf(*file);
  LAMINA_ASSIGN_OR_RETURN(std::vector<float> divisors, RopeDivisorsOf(*file, config.head_dim));
  if (divisors.empty()) return config;
  const double linear = config.rope_scaling.factor;  // 1 without one
  config.rope_scaling = {.kind = RopeScaling::Kind::kLongRope};
  for (const float divisor : divisors)
    config.rope_scaling.divisors.push_back(linear * static_cast<double>(divisor));
  return config;
}

}  // namespace

double ModelConfig::AttentionScale() const {
  if (attention_multiplier > 0) return attention_multiplier;
  return 1 / std::sqrt(query_pre_attn_scalar > 0 ? query_pre_attn_scalar : head_dim);
}

Result<ModelConfig> ModelConfig::Parse(const Files& files, const std::string& where) {
  const std::string config_file = where + files.config_name;
  LAMINA_ASSIGN_OR_RETURN(const json config_object, ParseJsonObject(files.config, config_file));
  JsonKeys keys(config_object, config_file);
  ModelConfig config;
  config.model_type = keys.OptionalString("model_type").value_or("");
  config.architecture = ParseArchitecture(keys, !files.graph.empty());
  LAMINA_RETURN_IF_ERROR(keys.status());
  LAMINA_ASSIGN_OR_RETURN(config.dtype, ParseDType(keys));
  if (const json* quantization = keys.Find("quantization_config"); quantization != nullptr) {
    if (!quantization->is_object()) keys.Reject("quantization_config", "an object");
    LAMINA_RETURN_IF_ERROR(keys.status());
    JsonKeys of_quantization(*quantization, config_file + ": quantization_config");
    config.quantization = QuantizationConfig::Parse(of_quantization);
    LAMINA_RETURN_IF_ERROR(of_quantization.status());
    config.layer_bits = config.quantization->BitsPerElement();
  }
  if (files.graph.empty()) {
    LAMINA_RETURN_IF_ERROR(ReadFamily(keys, config));
  } else {
    LAMINA_RETURN_IF_ERROR(
        ReadImportedModel(files.graph, where + "/" + kImportedGraphFile, config));
  }
  ParseSpecialTokens(keys, config);
  LAMINA_RETURN_IF_ERROR(keys.status());
  if (files.generation.empty()) return config;

  const std::string generation_file = where + "/generation_config.json";
  LAMINA_ASSIGN_OR_RETURN(const json generation_object,
                          ParseJsonObject(files.generation, generation_file));
  JsonKeys generation_keys(generation_object, generation_file);
  ParseSpecialTokens(generation_keys, config);
  ParseGeneration(generation_keys, config.generation);
  LAMINA_RETURN_IF_ERROR(generation_keys.status());
  return config;
}

Result<ModelConfig> ModelConfig::Load(const std::string& path) {
  return IsGgufPath(path) ? LoadGgufConfig(path) : LoadFolder(path);
}

}  // namespace lamina
