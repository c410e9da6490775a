// The computation graph of a model: operators on values of [rows, width] fp32, with one row per
// token.
//
// Graphs are not written by hand. Tracing the forward code of model/families/ records one
// (model/tracer.h), and model/exported/ makes one of a program that was exported from PyTorch. The
// splitter cuts it into slices (splitter/slices.h), and compute nodes execute those.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/attention_window.h"
#include "base/dtype.h"
#include "model/expert_routing.h"

namespace lamina {

// An index into Graph::values.
using ValueId = int32_t;

// A tensor of the checkpoint, or the part of it that an operator reads: one rank's share, or some
// outputs of a fused linear layer.
struct WeightRef {
  std::string name;  // as in the safetensors file
  // What the operator reads. A linear layer's weight is [out_features, in_features], a table [rows,
  // width], a vector [width].
  std::vector<int64_t> shape;
  // The shape of the whole tensor. Empty: `shape`, and all of the tensor is read.
  std::vector<int64_t> whole = {};
  // The part begins at first[d] in each dimension d and has shape[d] elements there. Empty: it
  // begins at 0 everywhere.
  std::vector<int64_t> first = {};
  // Of vectors: the checkpoint holds it in several tensors of equal size, which follow each other.
  // `name` then is what the whole is called here. Empty: it holds one tensor, `name`.
  std::vector<std::string> pieces = {};
  // For vectors: the operator adds this to each element that the checkpoint holds. Gemma 2 stores
  // the weights of its norms less 1.
  float plus = 0;
  // The checkpoint holds the matrix as [in_features, out_features]. `shape`, `whole` and `first`
  // describe it as [out_features, in_features] all the same.
  bool transposed = false;
  // The checkpoint holds `size` tensors like the whole one in a single tensor, which has one
  // dimension more in front; this is number `index` of them. size == 0: it holds the one.
  struct Stack {
    int64_t size = 0;
    int64_t index = 0;
  } stack = {};

  // Of a quantized matrix: bits that the checkpoint spends on an element, scales among them. 0: it
  // holds plain numbers.
  double quantized_bits = 0;

  // Where the rows of a part do not follow each other: they come in blocks of `size` rows, the
  // first one at first[0] and each next one `step` rows further. size == 0: the rows follow each
  // other.
  struct Blocks {
    int64_t size = 0;
    int64_t step = 0;
  } blocks = {};

  // Tells this part from other parts of the same tensor that the graph reads, for example "[0:64]"
  // for the first 64 rows. Empty where all operators read the tensor in the same way.
  std::string part = {};
  // The key of the loaded weight: "attn.weight[0:64]".
  std::string id() const { return name + part; }
};

// Of the part that the operator reads.
double NumElements(const WeightRef& weight);
// Its bytes where plain numbers are of type `dtype`.
double StoredBytes(const WeightRef& weight, DType dtype);

// Each kind says: inputs -> width of the output; weights; attributes of Op that it uses. A width
// that is not given is that of the first input.
enum class OpKind {
  // -> [1], the row's token id. The order of a step names it for every slice, so handing it on
  // costs nothing.
  kTokens,
  // -> [1], the row's position in its sequence. Known to every slice, as the token is.
  kPositions,
  // tokens -> [dim]; weights: table [vocab, dim].
  kEmbedding,
  // positions -> [dim]; weights: table [rows, dim]; first_row, the row of position 0.
  kPositionEmbedding,
  // x -> x / sqrt(mean(x^2) + eps) * weight; weights: [dim] or none; eps.
  kRmsNorm,
  // x -> RMSNorm of each head by itself; weights: [head_dim] or none; eps, num_heads, head_dim.
  kHeadNorm,
  // x -> LayerNorm of each head by itself; weights: [num_heads * head_dim]; eps, num_heads,
  // head_dim.
  kHeadLayerNorm,
  // x -> LayerNorm of the row; weights: none, [dim], or [dim] and bias [dim]; eps.
  kLayerNorm,
  // x -> [out]; weights: [out, in], and bias [out] if there are two.
  kLinear,
  // x, positions -> x with rotated heads; num_heads, head_dim, inverse_frequencies, interleaved,
  // scale.
  kRope,
  // gate, up -> silu(gate) * up.
  kSiluMul,
  // gate, up -> gelu(gate) * up, where gelu is the tanh approximation.
  kGeluMul,
  kSilu,      // x * sigmoid(x)
  kGelu,      // by the error function
  kGeluTanh,  // the tanh approximation
  kRelu,      // max(x, 0)
  kScale,     // x * scale; attribute scale
  kSoftCap,   // soft_cap * tanh(x / soft_cap); attribute soft_cap
  // x, positions -> x times what PositionGrowth in kernels/elementwise.h says; scale, period.
  kGrowByPosition,
  // x, router's logits [num_experts] -> a mixture of experts: the sum of the SwiGLU outputs of the
  // experts_per_token experts with the largest logits, each weighted as `routing` says; weights: w1
  // (gate), w3 (up), w2 (down) of expert 0, with a bias behind each if expert_bias, then of expert
  // 1, ...; num_experts, experts_per_token, routing, expert_bias, swiglu_limit.
  kExperts,
  kSigmoidGate,  // gate [1], x -> sigmoid(gate) * x
  kAdd,          // a + b
  kMul,          // a * b, element by element
  // q [num_heads * head_dim], k and v [num_kv_heads * head_dim] -> [num_heads * head_dim]; weights:
  // none, or sinks [num_heads]; layer, num_heads, num_kv_heads, head_dim, scale, window, soft_cap.
  // Runs on memory nodes; slices end before it. A head's sink is one more score in its softmax, of
  // a token whose v is 0; compute nodes add it to what memory nodes answer.
  kAttention,
  // A rank's partial sum -> the sum over all ranks; num_ranks. Stands only in graphs of one rank
  // (splitter/tensor_parallel.h).
  kAllReduce,
};
// The kind in snake_case: "rms_norm".
std::string_view OpName(OpKind kind);

// One operator. Only the attributes that OpKind names for its kind are meaningful.
struct Op {
  OpKind kind = OpKind::kAdd;
  // The operator's path in the model, "layers.3.self_attn.q_proj", for people: traces, messages,
  // `lamina split`.
  std::string name;
  std::vector<ValueId> inputs;
  ValueId output = -1;
  std::vector<WeightRef> weights;

  float eps = 0;
  int layer = -1;  // the n-th attention of the model, from 0
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  // For an attention what scores are multiplied by, for a rotation the rotated elements; and
  // PositionGrowth's.
  float scale = 0;
  float period = 0;  // PositionGrowth's
  // For an attention: scaled scores s become soft_cap * tanh(s / soft_cap). 0: no cap.
  float soft_cap = 0;
  AttentionWindow window = {};
  int64_t first_row = 0;
  // Pair i of each head is rotated by the row's position times inverse_frequencies[i]. Elements
  // behind the n frequencies' 2 n are not rotated.
  std::vector<float> inverse_frequencies = {};
  // true: the pairs are elements (0, 1), (2, 3), ...; false: (0, n), (1, n + 1), ... for n
  // frequencies.
  bool interleaved = false;
  int num_experts = 0;
  int experts_per_token = 0;
  ExpertRouting routing = ExpertRouting::kSoftmax;
  bool expert_bias = false;
  // 0: experts take silu(gate) * up; else what SwigluOai in kernels/elementwise.h says.
  float swiglu_limit = 0;
  int num_ranks = 0;
};

// The output of one operator.
struct Value {
  std::string name;   // the name of the operator that produces it
  int64_t width = 0;  // elements per row
  // What it costs to hand a row of it to another node; 0 for tokens and positions.
  int64_t bytes_per_token = 0;
  int32_t producer = -1;  // index into Graph::ops
};

// Operators stand in the order in which the forward code ran, which is a topological order.
struct Graph {
  std::vector<Op> ops;
  std::vector<Value> values;
  ValueId logits = -1;  // the model's result, [vocab]
};

// The last linear layer before the logits. REQUIRES: the graph has logits.
const Op& HeadOf(const Graph& graph);

}  // namespace lamina
