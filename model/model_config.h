// What config.json and generation_config.json of a Hugging Face checkpoint say, checked.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/ids.h"
#include "base/status.h"

namespace lamina {

struct Graph;

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
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool tied_head = false;  // lm_head.weight is embed_tokens.weight
  // [num_layers] tokens that a row attends to, itself among them; 0: all. Empty: all in every
  // layer.
  std::vector<int64_t> windows;
  double query_pre_attn_scalar = 0;  // scores are divided by its root; 0: by that of head_dim
  double attention_soft_cap = 0;     // of the scaled scores; 0: none
  double logit_soft_cap = 0;         // of the logits; 0: none
  bool head_norm = false;            // q and k are normed head by head
  // Of a token, projected to hidden_size and back; 0: it is hidden_size.
  int64_t embedding_size = 0;
  int num_experts = 0;  // 0: one MLP
  int experts_per_token = 0;
  bool norm_first = true;  // norms stand before attention and MLP, not behind them
  bool final_norm = true;
  // The model as lamina_graph.json has it (docs/export.md); null: forward code is run.
  std::shared_ptr<const Graph> imported;
  std::optional<TokenId> bos_token;
  std::vector<TokenId> eos_tokens;  // of both files
  std::optional<TokenId> first_eos() const {
    return eos_tokens.empty() ? std::nullopt : std::optional(eos_tokens.front());
  }

  // Sampling defaults of generation_config.json; absent: the API's defaults.
  struct Generation {
    std::optional<float> temperature, top_p, min_p, repetition_penalty;
    std::optional<int32_t> top_k;
  } generation;

  int64_t WindowOf(int layer) const {
    return windows.empty() ? 0 : windows[static_cast<size_t>(layer)];
  }
  double AttentionScale() const;

  // Frequencies for the rotary embedding, [head_dim / 2], rescaled as the model says.
  std::vector<float> InverseFrequencies() const;

  // Reads DIR/config.json and, if there, DIR/generation_config.json and DIR/lamina_graph.json.
  // kNotFound names the missing file; kInvalidArgument names file, key, what stood there and what
  // was expected (missing key, wrong type, a size that is zero, negative or absurd, heads that do
  // not divide); kUnimplemented for an architecture that has neither a file in model/families/ nor
  // a lamina_graph.json, naming what there is to do.
  static Result<ModelConfig> Load(const std::string& dir);
  struct Files {
    std::string config;
    std::string generation = {};  // the texts of the files; empty: there is none
    std::string graph = {};
  };
  static Result<ModelConfig> Parse(const Files& files, const std::string& where);
};

}  // namespace lamina
