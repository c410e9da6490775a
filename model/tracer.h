// The vocabulary in which a model's forward code is written (model/families/). Running that code
// computes nothing: each call appends one operator to the tracer's graph and returns a handle for
// its result. Forward code knows nothing of slices, nodes or batches.
//
//   Tensor Mlp(Tensor x, const ModulePath& at) {
//     return Linear(SiluMul(Linear(x, at / "gate_proj", 640), Linear(x, at / "up_proj", 640), at /
//     "act"), at / "down_proj", 256);
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

// A value of the traced program: one row per token, `width` fp32 elements each. Cheap to copy.
// REQUIRES: its tracer lives.
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
  Tensor positions() { return positions_; }  // [1], its position in its sequence

  // Appends `op`, whose output has `width` elements. Its name is `at` without the checkpoint's
  // leading "model.".
  Tensor Record(Op op, const ModulePath& at, const std::vector<Tensor>& inputs, int64_t width);

  // Keeps the first message unless `condition` holds.
  void Require(bool condition, const ModulePath& at, const std::string& expected);

  // The graph with its result. kInternal with the first mistake. The tracer is empty afterwards.
  Result<Graph> Finish(Tensor logits);

 private:
  Graph graph_;
  Status error_;
  Tensor tokens_;
  Tensor positions_;
};

// table: "<at>.weight" [vocab_size, width].
Tensor Embedding(Tensor tokens, const ModulePath& at, int64_t vocab_size, int64_t width);

// table: "<at>.weight" [first_row + max_positions, width]; position p has row first_row + p.
struct PositionTable {
  int64_t max_positions = 0;
  int64_t first_row = 0;
};
Tensor PositionEmbedding(Tensor positions, const ModulePath& at, const PositionTable& table,
                         int64_t width);

// weight: "<at>.weight" [x's width]. A checkpoint may hold it without a part that all elements have
// in common.
struct RmsNormOptions {
  double eps = 0;
  double plus = 0;  // added to each element of the weight
};
Tensor RmsNorm(Tensor x, const ModulePath& at, const RmsNormOptions& options);

// Each of num_heads heads of head_dim is normed by itself. weight: "<at>.weight" [head_dim].
Tensor HeadNorm(Tensor x, const ModulePath& at, int num_heads, int head_dim, double eps);

// weight and bias: "<at>.weight", "<at>.bias" [x's width].
Tensor LayerNorm(Tensor x, const ModulePath& at, double eps);

// weight: "<at>.weight" [out_features, x's width], bias: "<at>.bias" [out_features].
struct LinearOptions {
  bool bias = false;
  std::string weight = {};  // instead of "<at>.weight", for tied weights
};
Tensor Linear(Tensor x, const ModulePath& at, int64_t out_features,
              const LinearOptions& options = {});

// x: num_heads heads of head_dim each, of which the first pairs are turned by their row's position
// times a frequency.
struct RopeHeads {
  int num_heads = 0;
  int head_dim = 0;
  std::vector<float> inverse_frequencies = {};  // at most head_dim / 2, one for each pair
  bool interleaved = false;                     // as in Op
};
Tensor Rope(Tensor x, Tensor positions, const ModulePath& at, const RopeHeads& heads);

Tensor SiluMul(Tensor gate, Tensor up, const ModulePath& at);
Tensor GeluMul(Tensor gate, Tensor up, const ModulePath& at);  // gelu by its tanh formula
Tensor Relu(Tensor x, const ModulePath& at);
Tensor Scale(Tensor x, const ModulePath& at, double factor);
Tensor SoftCap(Tensor x, const ModulePath& at, double cap);  // cap * tanh(x / cap)
Tensor Add(Tensor a, Tensor b, const ModulePath& at);
Tensor Mul(Tensor a, Tensor b, const ModulePath& at);

// Of `router` [num_experts], a row's logits, the likeliest `per_token` experts count, with the
// softmax over their logits. Expert e is w2(silu(w1 x) * w3 x). weights: "<at>.<e>.w1.weight" and
// w3 [intermediate_size, x's width], w2 [x's width, intermediate_size].
struct ExpertShape {
  int num_experts = 0;
  int per_token = 0;
  int64_t intermediate_size = 0;
};
Tensor Experts(Tensor x, Tensor router, const ModulePath& at, const ExpertShape& shape);

// Softmax attention of each row over its sequence so far; the cache of earlier tokens' k and v is
// implied by `layer`.
struct TracedAttention {
  int layer = 0;  // counts the model's attentions from 0
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  double scale = 0;
  int64_t window = 0;   // tokens that a row attends to, itself among them; 0: all
  double soft_cap = 0;  // scaled scores s become soft_cap * tanh(s / soft_cap); 0: they stay
};
Tensor Attention(Tensor q, Tensor k, Tensor v, const ModulePath& at, const TracedAttention& shape);

}  // namespace lamina
