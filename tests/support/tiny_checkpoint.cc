#include "tests/support/tiny_checkpoint.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace lamina {
namespace {

using nlohmann::json;

struct TensorSpec {
  std::string name;
  std::vector<int> shape;
  float mean = 0;
  float spread = 0;  // elements are uniform in mean +- spread
};

std::vector<TensorSpec> Tensors(const TinyCheckpointOptions& o) {
  std::vector<TensorSpec> tensors;
  const auto linear = [&tensors](const std::string& name, int out, int in, bool bias) {
    tensors.push_back({name + ".weight", {out, in}, 0, 2.5F / std::sqrt(static_cast<float>(in))});
    if (bias) tensors.push_back({name + ".bias", {out}, 0, 0.5F});
  };
  const auto norm = [&](const std::string& name) {
    tensors.push_back({name + ".weight", {o.hidden_size}, 1, 0.3F});
  };

  tensors.push_back({"model.embed_tokens.weight", {o.vocab_size, o.hidden_size}, 0, 1});
  for (int layer = 0; layer < o.num_layers; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer);
    norm(at + ".input_layernorm");
    linear(at + ".self_attn.q_proj", o.num_heads * o.head_dim, o.hidden_size, o.attention_bias);
    linear(at + ".self_attn.k_proj", o.num_kv_heads * o.head_dim, o.hidden_size, o.attention_bias);
    linear(at + ".self_attn.v_proj", o.num_kv_heads * o.head_dim, o.hidden_size, o.attention_bias);
    linear(at + ".self_attn.o_proj", o.hidden_size, o.num_heads * o.head_dim, o.attention_bias);
    norm(at + ".post_attention_layernorm");
    linear(at + ".mlp.gate_proj", o.intermediate_size, o.hidden_size, o.mlp_bias);
    linear(at + ".mlp.up_proj", o.intermediate_size, o.hidden_size, o.mlp_bias);
    linear(at + ".mlp.down_proj", o.hidden_size, o.intermediate_size, o.mlp_bias);
  }
  norm("model.norm");
  if (!o.tied_head) linear("lm_head", o.vocab_size, o.hidden_size, false);
  return tensors;
}

// SplitMix64: the same numbers on every platform.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  float Uniform() {  // [-1, 1), a multiple of 2^-23
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<float>(static_cast<double>((z ^ (z >> 31)) >> 40) / 8388608.0 - 1.0);
  }

 private:
  uint64_t state_;
};

// The nearest lower magnitude that the dtype holds exactly; any value will do for random weights.
void AppendElement(std::string& bytes, float x, const std::string& dtype) {
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  size_t size = 2;
  if (dtype == "F32") {
    size = 4;
  } else if (dtype == "F16") {
    int exponent = 0;
    const double fraction = std::frexp(std::fabs(double{x}), &exponent);  // [0.5, 1)
    const bool representable = x != 0 && exponent > -14;                  // below: 0
    bits = representable ? static_cast<uint32_t>((exponent + 14) << 10) +
                               (static_cast<uint32_t>(fraction * 2048) & 1023u)
                         : 0;
    if (x < 0) bits |= 0x8000u;
  } else {
    bits >>= 16;
  }
  for (size_t b = 0; b < size; ++b) bytes.push_back(static_cast<char>(bits >> (8 * b)));
}

void WriteShard(const std::string& path, const std::vector<TensorSpec>& tensors,
                const std::string& dtype, Random& random) {
  json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const TensorSpec& tensor : tensors) {
    const size_t begin = data.size();
    int64_t count = 1;
    for (const int dimension : tensor.shape) count *= dimension;
    for (int64_t i = 0; i < count; ++i)
      AppendElement(data, tensor.mean + tensor.spread * random.Uniform(), dtype);
    header[tensor.name] = {
        {"dtype", dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  std::string length;
  for (size_t b = 0; b < 8; ++b) length.push_back(static_cast<char>(text.size() >> (8 * b)));
  std::ofstream(path, std::ios::binary) << length << text << data;
}

void WriteConfig(const std::string& path, const TinyCheckpointOptions& o) {
  json config = {{"architectures", json::array({"LlamaForCausalLM"})},
                 {"model_type", "llama"},
                 {"torch_dtype", o.dtype == "F32"   ? "float32"
                                 : o.dtype == "F16" ? "float16"
                                                    : "bfloat16"},
                 {"hidden_act", "silu"},
                 {"vocab_size", o.vocab_size},
                 {"hidden_size", o.hidden_size},
                 {"intermediate_size", o.intermediate_size},
                 {"num_hidden_layers", o.num_layers},
                 {"num_attention_heads", o.num_heads},
                 {"num_key_value_heads", o.num_kv_heads},
                 {"head_dim", o.head_dim},
                 {"max_position_embeddings", o.max_positions},
                 {"rms_norm_eps", 1e-5},
                 {"rope_theta", 10000.0},
                 {"rope_scaling", json::parse(o.rope_scaling)},
                 {"attention_bias", o.attention_bias},
                 {"mlp_bias", o.mlp_bias},
                 {"tie_word_embeddings", o.tied_head},
                 {"bos_token_id", 1}};
  if (o.eos_token >= 0) config["eos_token_id"] = o.eos_token;
  std::ofstream(path) << config.dump(2) << "\n";
}

void WriteShards(const std::string& dir, const std::vector<TensorSpec>& tensors,
                 const TinyCheckpointOptions& o, Random& random) {
  json weight_map = json::object();
  const auto num_shards = static_cast<size_t>(o.num_shards);
  for (size_t shard = 0; shard < num_shards; ++shard) {
    const std::string name = "model-0000" + std::to_string(shard + 1) + "-of-0000" +
                             std::to_string(num_shards) + ".safetensors";
    const size_t begin = tensors.size() * shard / num_shards;
    const size_t end = tensors.size() * (shard + 1) / num_shards;
    const std::vector<TensorSpec> part(tensors.begin() + static_cast<std::ptrdiff_t>(begin),
                                       tensors.begin() + static_cast<std::ptrdiff_t>(end));
    for (const TensorSpec& tensor : part) weight_map[tensor.name] = name;
    WriteShard(dir + "/" + name, part, o.dtype, random);
  }
  std::ofstream(dir + "/model.safetensors.index.json")
      << json{{"metadata", json::object()}, {"weight_map", weight_map}}.dump();
}

}  // namespace

TinyCheckpoint::TinyCheckpoint(const TinyCheckpointOptions& options) {
  WriteConfig(folder_ / "config.json", options);
  Random random(options.seed);
  const std::vector<TensorSpec> tensors = Tensors(options);
  if (options.num_shards > 1) {
    WriteShards(dir(), tensors, options, random);
  } else {
    WriteShard(folder_ / "model.safetensors", tensors, options.dtype, random);
  }
}

}  // namespace lamina
