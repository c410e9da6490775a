// The vocabulary in which a model's forward code is written (model/families/). Running that code
// computes nothing: each call appends one operator to the tracer's graph and returns a handle for
// its result. Forward code knows nothing of slices, nodes or batches.
//
//   Tensor Mlp(Tensor x, const ModulePath& at) {
//     const Tensor gate = Linear(x, at / "gate_proj", 640);
//     const Tensor up = Linear(x, at / "up_proj", 640);
//     return Linear(SiluMul(gate, up, at / "act"), at / "down_proj", 256);
//   }
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/graph.h"

namespace lamina {

// Where a module stands in the checkpoint, joined with dots: ModulePath("model.layers") / 3 / "mlp"
// is "model.layers.3.mlp".
class ModulePath {
 public:
  explicit ModulePath(std::string text) : text_(std::move(text)) {}
  ModulePath operator/(std::string_view child) const {
    return ModulePath(text_ + "." + std::string(child));
  }
  ModulePath operator/(int index) const { return ModulePath(text_ + "." + std::to_string(index)); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class Tracer;

// A handle for a value of the traced program: one row per token, `width` fp32 elements each. Cheap
// to copy. REQUIRES: its tracer outlives it.
class Tensor {
 public:
  int64_t width() const { return width_; }
  ValueId id() const { return id_; }
  Tracer& tracer() const { return *tracer_; }

 private:
  friend class Tracer;
  Tensor(Tracer* tracer, ValueId id, int64_t width) : tracer_(tracer), id_(id), width_(width) {}

  Tracer* tracer_;
  ValueId id_;
  int64_t width_;
};

// Collects the graph. A mistake in forward code (widths that do not fit) is kept as the first error
// and comes back from Finish, so that forward code needs no error handling. Thread: owner.
class Tracer {
 public:
  Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  Tensor tokens() { return tokens_; }        // [1], the row's token id
  Tensor positions() { return positions_; }  // [1], the row's position in its sequence

  // Appends `op`, which reads `inputs` and whose output has `width` elements per row. Fills in the
  // operator's name, inputs and output; its name is `at` without the checkpoint's leading "model.".
  Tensor Record(Op op, const ModulePath& at, const std::vector<Tensor>& inputs, int64_t width);

  // Unless `condition` holds, keeps "tracing AT: expected EXPECTED" as the error, if it is the
  // first.
  void Require(bool condition, const ModulePath& at, const std::string& expected);

  // The graph with `logits` as its result, or kInternal with the first mistake. The tracer must not
  // be used afterwards.
  Result<Graph> Finish(Tensor logits);

 private:
  Graph graph_;
  Status error_;
  Tensor tokens_;
  Tensor positions_;
};

// Row `token` of the table "<at>.weight" [vocab_size, width].
Tensor Embedding(Tensor tokens, const ModulePath& at, int64_t vocab_size, int64_t width);

// A table "<at>.weight" [first_row + max_positions, width], of which position p has row first_row +
// p.
struct PositionTable {
  int64_t max_positions = 0;
  int64_t first_row = 0;
};
Tensor PositionEmbedding(Tensor positions, const ModulePath& at, const PositionTable& table,
                         int64_t width);

// x / sqrt(mean(x^2) + eps) * weight, with the weight "<at>.weight" [x's width] ("Root Mean Square
// Layer Normalization", section 4).
struct RmsNormOptions {
  double eps = 0;
  bool weight = true;  // false: there is none, and all elements count alike
  // Added to each element of the weight, for checkpoints that hold weights less 1.
  double plus = 0;
};
Tensor RmsNorm(Tensor x, const ModulePath& at, const RmsNormOptions& options);

// RMSNorm of each of num_heads heads of head_dim by itself. All heads share the weight
// "<at>.weight" [head_dim]. REQUIRES: x's width is num_heads * head_dim.
Tensor HeadNorm(Tensor x, const ModulePath& at, int num_heads, int head_dim,
                const RmsNormOptions& options);

// Weight and bias: "<at>.weight" and "<at>.bias", both [x's width].
struct LayerNormOptions {
  double eps = 0;
  double plus = 0;  // added to each element of the weight
  bool bias = true;
};
Tensor LayerNorm(Tensor x, const ModulePath& at, const LayerNormOptions& options);

// LayerNorm of each of num_heads heads of head_dim by itself. Head h has the weight
// "<at>.<h>.weight" [head_dim] and no bias. REQUIRES: x's width is num_heads * head_dim.
Tensor HeadLayerNorm(Tensor x, const ModulePath& at, int num_heads, int head_dim, double eps);

// x * W^T + b, with W "<at>.weight" [out_features, x's width] and b "<at>.bias" [out_features].
struct LinearOptions {
  bool bias = false;
  // The weight's full name where it is not "<at>.weight": a head that shares the table of the
  // embedding.
  std::string weight = {};  // instead of "<at>.weight", for tied weights
  // Some outputs of a fused layer: weight and bias have `of` rows in the checkpoint, of which the
  // out_features from `first` on are meant. of == 0: they have out_features rows.
  struct Rows {
    int64_t first = 0;
    int64_t of = 0;
  } rows = {};
};
Tensor Linear(Tensor x, const ModulePath& at, int64_t out_features,
              const LinearOptions& options = {});

// x is num_heads heads of head_dim elements each. In each head pair i is rotated by the row's
// position times inverse_frequencies[i].
struct RopeHeads {
  int num_heads = 0;
  int head_dim = 0;
  // At most head_dim / 2, one per pair. Elements behind these pairs are not rotated.
  std::vector<float> inverse_frequencies = {};
  // Which elements are a pair: see Op::interleaved.
  bool interleaved = false;
  // What rotated elements are multiplied by.
  double scale = 1;
};
Tensor Rope(Tensor x, Tensor positions, const ModulePath& at, const RopeHeads& heads);

// silu(gate) * up.
Tensor SiluMul(Tensor gate, Tensor up, const ModulePath& at);
// gelu(gate) * up, where gelu is its tanh approximation.
Tensor GeluMul(Tensor gate, Tensor up, const ModulePath& at);
Tensor Relu(Tensor x, const ModulePath& at);
// factor * x.
Tensor Scale(Tensor x, const ModulePath& at, double factor);
// cap * tanh(x / cap). REQUIRES: cap > 0.
Tensor SoftCap(Tensor x, const ModulePath& at, double cap);
// x times 1 + scale * ln(1 + floor((position + 1) / period)). REQUIRES: period > 0.
Tensor GrowByPosition(Tensor x, Tensor positions, const ModulePath& at, double scale,
                      double period);
Tensor Add(Tensor a, Tensor b, const ModulePath& at);
Tensor Mul(Tensor a, Tensor b, const ModulePath& at);

// sigmoid(gate) * x, with one gate for a row. REQUIRES: gate's width is 1.
Tensor SigmoidGate(Tensor gate, Tensor x, const ModulePath& at);

// A mixture of SwiGLU experts ("Mixtral of Experts", section 2.1). `router` [num_experts] has a
// row's logits: the per_token experts with the largest ones count. Expert e is down(silu(gate x) *
// up x), with the weights
// "<at>.<e>.<gate>.weight" and "<at>.<e>.<up>.weight" [intermediate_size, x's width] and
// "<at>.<e>.<down>.weight" [x's width, intermediate_size].
struct ExpertShape {
  int num_experts = 0;
  int per_token = 0;
  int64_t intermediate_size = 0;
  ExpertRouting routing = ExpertRouting::kSoftmax;
  std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";
};
Tensor Experts(Tensor x, Tensor router, const ModulePath& at, const ExpertShape& shape);

// The same with the weights of all experts in one tensor each: "<at>.gate_up_proj" [num_experts,
// x's width, 2 * intermediate_size] and "<at>.down_proj" [num_experts, intermediate_size, x's
// width]. The shape's names are not used.
struct ExpertStacks {
  bool take_turns = false;  // outputs of gate and of up alternate; false: all of gate come first
  bool bias = false;        // there are "<at>.gate_up_proj_bias" and "<at>.down_proj_bias"
  double swiglu_limit = 0;  // Op::swiglu_limit
};
Tensor StackedExperts(Tensor x, Tensor router, const ModulePath& at, const ExpertShape& shape,
                      const ExpertStacks& stacks);

// Softmax attention of each row over the tokens of its sequence up to itself. The cache of earlier
// tokens' k and v is not part of the graph; `layer` says which one is meant.
struct TracedAttention {
  int layer = 0;  // the n-th attention of the model, from 0
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  // What scores are multiplied by, 1 / sqrt(head_dim) in most models.
  double scale = 0;
  AttentionWindow window = {};
  // Scaled scores s become soft_cap * tanh(s / soft_cap). 0: no cap.
  double soft_cap = 0;
  // The name of the sinks [num_heads] in the checkpoint (OpKind::kAttention). Empty: there are
  // none.
  std::string sinks = {};
};
// q: [num_heads * head_dim]; k and v: [num_kv_heads * head_dim]; the result is as wide as q.
Tensor Attention(Tensor q, Tensor k, Tensor v, const ModulePath& at, const TracedAttention& shape);

}  // namespace lamina
