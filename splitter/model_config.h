// What config.json and generation_config.json of a Hugging Face checkpoint say, checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/ids.h"
#include "base/status.h"

namespace lamina {

// Rotary frequencies' rescaling ("rope_scaling" or "rope_parameters" of config.json).
struct RopeScaling {
  enum class Kind { kNone, kLinear, kLlama3 };
  Kind kind = Kind::kNone;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_max_positions = 8192;
};

struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM"
  std::string model_type;    // "llama"
  DType dtype = DType::kBF16;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int64_t max_positions = 0;
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  bool attention_bias = false;  // q, k, v and o
  bool mlp_bias = false;
  bool tied_head = false;  // lm_head.weight is embed_tokens.weight
  std::optional<TokenId> bos_token;
  std::vector<TokenId> eos_tokens;  // of both files

  // Sampling defaults of generation_config.json; absent: the API's defaults.
  struct Generation {
    std::optional<float> temperature, top_p, min_p, repetition_penalty;
    std::optional<int32_t> top_k;
  } generation;

  // Frequencies for the rotary embedding, [head_dim / 2], rescaled as the model says.
  std::vector<float> InverseFrequencies() const;

  // Reads DIR/config.json and, if there, DIR/generation_config.json. kNotFound names the missing file; kInvalidArgument names file, key,
  // what stood there and what was expected (missing key, wrong type, a size that is zero, negative or absurd, heads that do not divide);
  // kUnimplemented for an architecture without a file in splitter/models/, naming those that exist.
  static Result<ModelConfig> Load(const std::string& dir);
  static Result<ModelConfig> Parse(const std::string& config_json, const std::string& generation_json, const std::string& where);
};

}  // namespace lamina
