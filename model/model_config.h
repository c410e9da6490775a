// What lamina needs to know of a model before it reads any weights: the contents of config.json and
// generation_config.json of a Hugging Face checkpoint, checked, and the graph of lamina_graph.json
// if the folder has one (docs/export.md); or what the keys of a GGUF file say.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/attention_window.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "base/status.h"
#include "model/expert_routing.h"
#include "model/quantization_config.h"
#include "model/rotary.h"

namespace lamina {

struct Graph;

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
  double rotary_part = 1;         // the part of each head that is rotated: its first elements
  bool rope_interleaved = false;  // pairs are neighbours, see Op::interleaved
  // Theta of the layers with a window, whose frequencies are not rescaled. 0: as in all layers.
  double local_rope_theta = 0;
  bool qkv_bias = false;  // the projections to q, k and v have a bias
  bool o_bias = false;    // the projection of the attention's output has a bias
  bool mlp_bias = false;
  bool tied_head = false;  // lm_head.weight is embed_tokens.weight
  // [num_layers] Empty: rows attend to all tokens in every layer.
  std::vector<AttentionWindow> windows;
  // [num_layers] Layers whose q and k are rotated. Empty: all.
  std::vector<bool> rotated_layers;
  // PositionGrowth's scale and period (kernels/elementwise.h) of queries in layers that are not
  // rotated. 0: they do not grow.
  double query_growth = 0, query_growth_period = 0;
  // Scores are divided by the square root of it. 0: by that of head_dim.
  double query_pre_attn_scalar = 0;
  // Scores are multiplied by it instead. 0: they are not.
  double attention_multiplier = 0;
  // What embeddings, the outputs of attention and MLP, and logits are multiplied by.
  double embedding_multiplier = 1;
  double residual_multiplier = 1;
  double logit_multiplier = 1;
  // Scaled scores s become cap * tanh(s / cap). 0: no cap.
  double attention_soft_cap = 0;
  // The same for logits.
  double logit_soft_cap = 0;
  bool attention_sinks = false;  // see OpKind::kAttention
  // Each head of q and of k goes through an RMSNorm of its own.
  bool head_norm = false;
  double norm_plus = 0;  // added to the weights of norms
  // Width of the embedding table where it is not hidden_size; tokens are projected to hidden_size
  // and back. 0: it is hidden_size.
  int64_t embedding_size = 0;
  // Width of what the logits are made of.
  int64_t state_size() const { return embedding_size > 0 ? embedding_size : hidden_size; }
  int num_experts = 0;  // 0: one MLP, no experts
  int experts_per_token = 0;
  int64_t expert_size = 0;         // an expert's intermediate_size
  int64_t shared_expert_size = 0;  // that of an expert for all tokens; 0: there is none
  ExpertRouting routing = ExpertRouting::kSoftmax;
  double swiglu_limit = 0;  // see Op::swiglu_limit
  // [num_layers] Layers that have one MLP although there are experts. Empty: none.
  std::vector<bool> dense_layers;
  // Norms stand before attention and MLP. false: behind the residual sums.
  bool norm_first = true;
  // Attention and MLP read the same norm of x, and x gets the sum of both.
  bool parallel_blocks = false;
  bool final_norm = true;  // a norm stands before the head
  // Null: all weights are plain numbers. `dtype` is then that of what is not quantized.
  std::optional<QuantizationConfig> quantization;
  // Bits that the checkpoint spends on an element, scales among them, on average over the matrices
  // of layers and of the head's one. 0: these are plain numbers of `dtype`.
  double layer_bits = 0;
  double head_bits = 0;
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
  AttentionWindow WindowOf(int layer) const {
    return windows.empty() ? AttentionWindow{} : windows[static_cast<size_t>(layer)];
  }
  bool IsRotated(int layer) const {
    return rotated_layers.empty() || rotated_layers[static_cast<size_t>(layer)];
  }
  // Whether the layer has experts. REQUIRES: as for WindowOf.
  bool HasExperts(int layer) const {
    return num_experts > 0 && (dense_layers.empty() || !dense_layers[static_cast<size_t>(layer)]);
  }
  int rotary_dim() const { return static_cast<int>(head_dim * rotary_part); }
  // What the scores q * k are multiplied by before the softmax.
  double AttentionScale() const;

  // `path` is a folder or a GGUF file. Of a folder, reads config.json and, if there,
  // generation_config.json and lamina_graph.json. kNotFound names a file that cannot be read.
  // kInvalidArgument names file, key, what stood there and what was expected: a missing key, a
  // wrong type, a size that is zero, negative or absurd, heads that do not divide. kUnimplemented
  // says the same of what lamina does not do: an architecture that has neither a file in
  // model/families/ nor a lamina_graph.json, quantized weights of another format than those of
  // quantization_config.h, a key whose value would change the result and is not known. Of a GGUF
  // file also kCorrupt (gguf/gguf_model.h).
  static Result<ModelConfig> Load(const std::string& path);
  // The texts of the files. An empty text means that there is no such file.
  struct Files {
    std::string config;
    std::string generation = {};
    std::string graph = {};
    std::string config_name = "/config.json";  // behind the folder's name in messages
  };
  // Load without the file system: `where` stands for the folder in messages.
  static Result<ModelConfig> Parse(const Files& files, const std::string& where);
};

}  // namespace lamina
