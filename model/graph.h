// The computation graph of a model: operators on values of [rows, width] fp32, one row per token.
// It is never written by hand: executing a model's plain forward code (model/families/)
// symbolically records it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lamina {

// Index into Graph::values.
using ValueId = int32_t;

// A tensor of the checkpoint, or the part of it that one of several ranks reads.
struct WeightRef {
  std::string name;                 // as in the safetensors file
  std::vector<int64_t> shape;       // linear: [out_features, in_features]
  std::vector<int64_t> whole = {};  // the tensor's shape; empty: `shape`, all of it is read
  // Of each dimension elements [first, first + shape) are read; empty: all.
  std::vector<int64_t> first = {};
  // Vectors: what the operator adds to each element that stands in the checkpoint.
  float plus = 0;
  // The checkpoint holds [in_features, out_features]; the shapes here are as if it did not.
  bool transposed = false;

  // Rows of a part that do not follow each other: blocks of `size` rows, `step` apart, the first
  // one at first[0]. size 0: they do.
  struct Blocks {
    int64_t size = 0;
    int64_t step = 0;
  } blocks = {};

  // What tells it from others that the graph reads of the same tensor: "attn.weight" + "[0:64]".
  std::string part = {};
  std::string id() const { return name + part; }
};

enum class OpKind {
  // -> [1]; the row's token id. Known to every slice without cost: it stands in the order.
  kTokens,
  kPositions,  // -> [1]; the row's position in its sequence, likewise
  kEmbedding,  // tokens -> [dim]; weights: table [vocab, dim]
  // Positions -> [dim]; weights: table [positions, dim]; first_row, which is position 0's.
  kPositionEmbedding,
  kRmsNorm,  // x -> x's width; weights: [dim] or none; eps
  // X -> x's width, RMSNorm of each head by itself; weights: [head_dim] or none; eps, num_heads,
  // head_dim.
  kHeadNorm,
  // X -> x's width; weights: [dim], bias [dim], or only the first, or none; eps.
  kLayerNorm,
  kLinear,  // x -> [out]; weights: [out, in], optionally bias [out]
  // X, positions -> x's width; num_heads, head_dim, inverse_frequencies, interleaved.
  kRope,
  kSiluMul,   // gate, up -> their width
  kGeluMul,   // gate, up -> their width; gelu by its tanh formula
  kSilu,      // x -> x's width
  kGelu,      // x -> x's width, by the error function
  kGeluTanh,  // x -> x's width, by the tanh formula
  kRelu,      // x -> x's width
  kScale,     // x -> x's width; scale
  kSoftCap,   // x -> x's width, soft_cap * tanh(x / soft_cap); soft_cap
  // X, router's logits [num_experts] -> x's width: SwiGLU of the experts_per_token likeliest
  // experts, weighted with the softmax over their logits; weights: w1 (gate), w3 (up), w2 (down) of
  // each expert; num_experts, experts_per_token.
  kExperts,
  kAdd,  // a, b -> their width
  kMul,  // a, b -> their width
  // Q [heads*head_dim], k, v [kv_heads*head_dim] -> [heads*head_dim]; layer, num_heads,
  // num_kv_heads, head_dim, scale, window, soft_cap.
  kAttention,
  kAllReduce,  // this rank's partial sum -> the sum over all ranks, of its width; num_ranks
};
std::string_view OpName(OpKind kind);

struct Op {
  OpKind kind = OpKind::kAdd;
  std::string name;  // path in the model, e.g. "layers.3.self_attn.q_proj"
  std::vector<ValueId> inputs;
  ValueId output = -1;
  std::vector<WeightRef> weights;

  // Attributes; which ones count stands at the kind.
  float eps = 0;
  int layer = -1;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  float scale = 0;
  float soft_cap = 0;  // attention: of the scaled scores; 0: none
  int64_t window = 0;  // tokens that a row attends to, itself among them; 0: all
  int64_t first_row = 0;
  // Of the first pairs of each head; the rest of a head stays.
  std::vector<float> inverse_frequencies = {};
  // Pairs are (0, 1), (2, 3), ...; else (0, n), (1, n + 1), ... of n frequencies.
  bool interleaved = false;
  int num_experts = 0;
  int experts_per_token = 0;
  int num_ranks = 0;
};

struct Value {
  std::string name;
  int64_t width = 0;  // elements per row
  // What handing it to another node costs per row; 0 for tokens and positions.
  int64_t bytes_per_token = 0;
  int32_t producer = -1;  // index into Graph::ops
};

// Ops stand in the order in which the forward code ran, which is a topological order.
struct Graph {
  std::vector<Op> ops;
  std::vector<Value> values;
  ValueId logits = -1;

  // Indices of the ops that read `value`.
  std::vector<int32_t> Consumers(ValueId value) const;
};

}  // namespace lamina
