// What lamina needs to know of a model before it reads any weights: the contents of config.json and
// generation_config.json of a Hugging Face checkpoint, checked, and the graph of lamina_graph.json
// if the folder has one (docs/export.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/ids.h"
#include "base/status.h"
#include "model/quantization_config.h"

namespace lamina {

struct Graph;

// How the frequencies of the rotary embedding are rescaled for longer contexts ("rope_scaling" or
// "rope_parameters" of config.json). kLinear uses `factor` alone; kLlama3 uses all fields, as Llama
// 3.1 does.
struct RopeScaling {
  enum class Kind { kNone, kLinear, kLlama3 };
  Kind kind = Kind::kNone;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_max_positions = 8192;  // positions that the model was first trained with
};

// A value: what every part of lamina that deals with a model is handed. The members have the
// meaning of the keys of config.json whose names they resemble; the readers in model/families/ fill
// them.
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
  // Positions that the model can tell apart: the longest sequence.
  int64_t max_positions = 0;
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  bool qkv_bias = false;  // the projections to q, k and v have a bias
  bool o_bias = false;    // the projection of the attention's output has a bias
  bool mlp_bias = false;
  bool tied_head = false;  // lm_head.weight is embed_tokens.weight
  // [num_layers] Number of tokens that a row attends to, the row's own among them; 0: all. Empty:
  // all tokens in every layer.
  std::vector<int64_t> windows;
  // Scores are divided by the square root of it. 0: by that of head_dim.
  double query_pre_attn_scalar = 0;
  // Scaled scores s become cap * tanh(s / cap). 0: no cap.
  double attention_soft_cap = 0;
  // The same for logits.
  double logit_soft_cap = 0;
  // Each head of q and of k goes through an RMSNorm of its own.
  bool head_norm = false;
  // Width of the embedding table where it is not hidden_size; tokens are projected to hidden_size
  // and back. 0: it is hidden_size.
  int64_t embedding_size = 0;
  int num_experts = 0;  // 0: one MLP, no experts
  int experts_per_token = 0;
  // Norms stand before attention and MLP. false: behind the residual sums.
  bool norm_first = true;
  bool final_norm = true;  // a norm stands before the head
  // Null: all weights are plain numbers. `dtype` is then that of what is not quantized.
  std::optional<QuantizationConfig> quantization;
  // The graph that was made of lamina_graph.json. Null: the forward code of `architecture` is
  // traced. Shared because configs are copied and graphs are large.
  std::shared_ptr<const Graph> imported;
  // config.json's, else generation_config.json's.
  std::optional<TokenId> bos_token;
  // Those of config.json, then the further ones of generation_config.json.
  std::vector<TokenId> eos_tokens;
  std::optional<TokenId> first_eos() const {
    return eos_tokens.empty() ? std::nullopt : std::optional(eos_tokens.front());
  }

  // Sampling defaults of generation_config.json. What is absent there has the API's default.
  struct Generation {
    std::optional<float> temperature, top_p, min_p, repetition_penalty;
    std::optional<int32_t> top_k;
  } generation;

  // The entry of `windows` for the layer. REQUIRES: 0 <= layer < num_layers.
  int64_t WindowOf(int layer) const {
    return windows.empty() ? 0 : windows[static_cast<size_t>(layer)];
  }
  // What the scores q * k are multiplied by before the softmax.
  double AttentionScale() const;

  // Frequencies of the rotary embedding, [head_dim / 2], in radians per position: rope_theta^(-2j /
  // head_dim) ("RoFormer", section 3.2.2), rescaled as rope_scaling says.
  std::vector<float> InverseFrequencies() const;

  // Reads DIR/config.json and, if there, DIR/generation_config.json and DIR/lamina_graph.json.
  // kNotFound names a file that cannot be read. kInvalidArgument names file, key, what stood there
  // and what was expected: a missing key, a wrong type, a size that is zero, negative or absurd,
  // heads that do not divide. kUnimplemented says the same of what lamina does not do: an
  // architecture that has neither a file in model/families/ nor a lamina_graph.json, quantized
  // weights of another format than those of quantization_config.h, a key whose value would change
  // the result and is not known.
  static Result<ModelConfig> Load(const std::string& dir);
  // The texts of the files. An empty text means that there is no such file.
  struct Files {
    std::string config;
    std::string generation = {};
    std::string graph = {};
  };
  // Load without the file system: `where` stands for the folder in messages.
  static Result<ModelConfig> Parse(const Files& files, const std::string& where);
};

}  // namespace lamina
