#include "model/tracer.h"

#include <utility>

namespace lamina {
namespace {

// Values travel between nodes as fp32.
constexpr int64_t kBytesPerElement = 4;

std::string DisplayName(const ModulePath& at) {
  constexpr std::string_view kPrefix = "model.";
  return at.text().starts_with(kPrefix) ? at.text().substr(kPrefix.size()) : at.text();
}

Op MakeOp(OpKind kind) {
  Op op;
  op.kind = kind;
  return op;
}

}  // namespace

Tracer::Tracer()
    : tokens_(Record(MakeOp(OpKind::kTokens), ModulePath("tokens"), {}, 1)),
      positions_(Record(MakeOp(OpKind::kPositions), ModulePath("positions"), {}, 1)) {}

Tensor Tracer::Record(Op op, const ModulePath& at, const std::vector<Tensor>& inputs,
                      int64_t width) {
  op.name = DisplayName(at);
  for (const Tensor& input : inputs) op.inputs.push_back(input.id());
  op.output = static_cast<ValueId>(graph_.values.size());

  Value value;
  value.name = op.name;
  value.width = width;
  // Every node gets tokens and positions with the order of a step, so that a cut through them is
  // free.
  const bool known_everywhere = op.kind == OpKind::kTokens || op.kind == OpKind::kPositions;
  value.bytes_per_token = known_everywhere ? 0 : width * kBytesPerElement;
  value.producer = static_cast<int32_t>(graph_.ops.size());

  graph_.ops.push_back(std::move(op));
  graph_.values.push_back(std::move(value));
  return Tensor(this, graph_.ops.back().output, width);
}

void Tracer::Require(bool condition, const ModulePath& at, const std::string& expected) {
  if (!condition && error_.ok())
    error_ = InternalError("tracing " + at.text() + ": expected " + expected);
}

Result<Graph> Tracer::Finish(Tensor logits) {
  if (!error_.ok()) return error_;
  graph_.logits = logits.id();
  return std::exchange(graph_, Graph());
}

Tensor Embedding(Tensor tokens, const ModulePath& at, int64_t vocab_size, int64_t width) {
  Tracer& tracer = tokens.tracer();
  tracer.Require(tokens.id() == tracer.tokens().id(), at, "the tokens as input");
  Op op = MakeOp(OpKind::kEmbedding);
  op.weights = {{at.text() + ".weight", {vocab_size, width}}};
  return tracer.Record(std::move(op), at, {tokens}, width);
}

Tensor PositionEmbedding(Tensor positions, const ModulePath& at, const PositionTable& table,
                         int64_t width) {
  Tracer& tracer = positions.tracer();
  tracer.Require(positions.id() == tracer.positions().id(), at, "the positions as input");
  Op op = MakeOp(OpKind::kPositionEmbedding);
  // The rows before position 0 are part of the checkpoint's tensor, whose shape is checked.
  op.weights = {{at.text() + ".weight", {table.first_row + table.max_positions, width}}};
  op.first_row = table.first_row;
  return tracer.Record(std::move(op), at, {positions}, width);
}

namespace {

std::vector<WeightRef> NormWeight(const ModulePath& at, int64_t width,
                                  const RmsNormOptions& options) {
  if (!options.weight) return {};
  return {
      {.name = at.text() + ".weight", .shape = {width}, .plus = static_cast<float>(options.plus)}};
}

}  // namespace

Tensor RmsNorm(Tensor x, const ModulePath& at, const RmsNormOptions& options) {
  Op op = MakeOp(OpKind::kRmsNorm);
  op.weights = NormWeight(at, x.width(), options);
  op.eps = static_cast<float>(options.eps);
  return x.tracer().Record(std::move(op), at, {x}, x.width());
}

Tensor HeadNorm(Tensor x, const ModulePath& at, int num_heads, int head_dim,
                const RmsNormOptions& options) {
  x.tracer().Require(x.width() == int64_t{num_heads} * head_dim, at,
                     "num_heads * head_dim elements");
  Op op = MakeOp(OpKind::kHeadNorm);
  op.weights = NormWeight(at, head_dim, options);
  op.eps = static_cast<float>(options.eps);
  op.num_heads = num_heads;
  op.head_dim = head_dim;
  return x.tracer().Record(std::move(op), at, {x}, x.width());
}

Tensor LayerNorm(Tensor x, const ModulePath& at, const LayerNormOptions& options) {
  Op op = MakeOp(OpKind::kLayerNorm);
  op.weights = {{.name = at.text() + ".weight",
                 .shape = {x.width()},
                 .plus = static_cast<float>(options.plus)}};
  if (options.bias) op.weights.push_back({at.text() + ".bias", {x.width()}});
  op.eps = static_cast<float>(options.eps);
  return x.tracer().Record(std::move(op), at, {x}, x.width());
}

Tensor HeadLayerNorm(Tensor x, const ModulePath& at, int num_heads, int head_dim, double eps) {
  x.tracer().Require(x.width() == int64_t{num_heads} * head_dim, at,
                     "num_heads * head_dim elements");
  Op op = MakeOp(OpKind::kHeadLayerNorm);
  WeightRef weight{.name = at.text() + ".weight", .shape = {x.width()}};
  for (int head = 0; head < num_heads; ++head)
    weight.pieces.push_back((at / head).text() + ".weight");
  op.weights = {std::move(weight)};
  op.eps = static_cast<float>(eps);
  op.num_heads = num_heads;
  op.head_dim = head_dim;
  return x.tracer().Record(std::move(op), at, {x}, x.width());
}

Tensor Linear(Tensor x, const ModulePath& at, int64_t out_features, const LinearOptions& options) {
  Op op = MakeOp(OpKind::kLinear);
  op.weights = {
      {options.weight.empty() ? at.text() + ".weight" : options.weight, {out_features, x.width()}}};
  if (options.bias) op.weights.push_back({at.text() + ".bias", {out_features}});
  const auto& [first, of] = options.rows;
  if (of == 0) return x.tracer().Record(std::move(op), at, {x}, out_features);
  x.tracer().Require(first >= 0 && first + out_features <= of, at, "rows of the fused layer");
  const std::string part =
      "[" + std::to_string(first) + ":" + std::to_string(first + out_features) + "]";
  for (WeightRef& weight : op.weights) {
    weight.whole = weight.shape;
    weight.whole[0] = of;
    weight.first.assign(weight.shape.size(), 0);
    weight.first[0] = first;
    weight.part = part;
  }
  return x.tracer().Record(std::move(op), ModulePath(at.text() + part), {x}, out_features);
}

Tensor Rope(Tensor x, Tensor positions, const ModulePath& at, const RopeHeads& heads) {
  Tracer& tracer = x.tracer();
  tracer.Require(positions.id() == tracer.positions().id(), at, "the positions as second input");
  tracer.Require(x.width() == int64_t{heads.num_heads} * heads.head_dim, at,
                 "num_heads * head_dim elements");
  const int64_t turned = 2 * std::ssize(heads.inverse_frequencies);
  tracer.Require(turned > 0 && turned <= heads.head_dim, at, "1 to head_dim / 2 frequencies");
  Op op = MakeOp(OpKind::kRope);
  op.num_heads = heads.num_heads;
  op.head_dim = heads.head_dim;
  op.inverse_frequencies = heads.inverse_frequencies;
  op.interleaved = heads.interleaved;
  op.scale = static_cast<float>(heads.scale);
  return tracer.Record(std::move(op), at, {x, positions}, x.width());
}

Tensor SiluMul(Tensor gate, Tensor up, const ModulePath& at) {
  gate.tracer().Require(gate.width() == up.width(), at, "gate and up of the same width");
  return gate.tracer().Record(MakeOp(OpKind::kSiluMul), at, {gate, up}, gate.width());
}

Tensor GeluMul(Tensor gate, Tensor up, const ModulePath& at) {
  gate.tracer().Require(gate.width() == up.width(), at, "gate and up of the same width");
  return gate.tracer().Record(MakeOp(OpKind::kGeluMul), at, {gate, up}, gate.width());
}

Tensor Relu(Tensor x, const ModulePath& at) {
  return x.tracer().Record(MakeOp(OpKind::kRelu), at, {x}, x.width());
}

Tensor Scale(Tensor x, const ModulePath& at, double factor) {
  Op op = MakeOp(OpKind::kScale);
  op.scale = static_cast<float>(factor);
  return x.tracer().Record(std::move(op), at, {x}, x.width());
}

Tensor SoftCap(Tensor x, const ModulePath& at, double cap) {
  x.tracer().Require(cap > 0, at, "a cap above 0");
  Op op = MakeOp(OpKind::kSoftCap);
  op.soft_cap = static_cast<float>(cap);
  return x.tracer().Record(std::move(op), at, {x}, x.width());
}

Tensor GrowByPosition(Tensor x, Tensor positions, const ModulePath& at, double scale,
                      double period) {
  Tracer& tracer = x.tracer();
  tracer.Require(positions.id() == tracer.positions().id(), at, "the positions as second input");
  tracer.Require(period > 0, at, "a period above 0");
  Op op = MakeOp(OpKind::kGrowByPosition);
  op.scale = static_cast<float>(scale);
  op.period = static_cast<float>(period);
  return tracer.Record(std::move(op), at, {x, positions}, x.width());
}

Tensor Add(Tensor a, Tensor b, const ModulePath& at) {
  a.tracer().Require(a.width() == b.width(), at, "two terms of the same width");
  return a.tracer().Record(MakeOp(OpKind::kAdd), at, {a, b}, a.width());
}

Tensor Mul(Tensor a, Tensor b, const ModulePath& at) {
  a.tracer().Require(a.width() == b.width(), at, "two factors of the same width");
  return a.tracer().Record(MakeOp(OpKind::kMul), at, {a, b}, a.width());
}

Tensor SigmoidGate(Tensor gate, Tensor x, const ModulePath& at) {
  x.tracer().Require(gate.width() == 1, at, "one gate for a row");
  return x.tracer().Record(MakeOp(OpKind::kSigmoidGate), at, {gate, x}, x.width());
}

namespace {

// An expert operator without weights.
Op ExpertsOf(Tensor x, Tensor router, const ModulePath& at, const ExpertShape& shape) {
  Tracer& tracer = x.tracer();
  tracer.Require(router.width() == shape.num_experts, at, "a logit for each expert");
  tracer.Require(shape.per_token > 0 && shape.per_token <= shape.num_experts, at,
                 "1 to num_experts experts per token");
  Op op = MakeOp(OpKind::kExperts);
  op.num_experts = shape.num_experts;
  op.experts_per_token = shape.per_token;
  op.routing = shape.routing;
  return op;
}

}  // namespace

Tensor Experts(Tensor x, Tensor router, const ModulePath& at, const ExpertShape& shape) {
  Op op = ExpertsOf(x, router, at, shape);
  const auto add = [&](const ModulePath& matrix, int64_t outputs, int64_t inputs) {
    op.weights.push_back({matrix.text() + ".weight", {outputs, inputs}});
  };
  for (int expert = 0; expert < shape.num_experts; ++expert) {
    add(at / expert / shape.gate, shape.intermediate_size, x.width());
    add(at / expert / shape.up, shape.intermediate_size, x.width());
    add(at / expert / shape.down, x.width(), shape.intermediate_size);
  }
  return x.tracer().Record(std::move(op), at, {x, router}, x.width());
}

Tensor StackedExperts(Tensor x, Tensor router, const ModulePath& at, const ExpertShape& shape,
                      const ExpertStacks& stacks) {
  Op op = ExpertsOf(x, router, at, shape);
  op.expert_bias = stacks.bias;
  op.swiglu_limit = static_cast<float>(stacks.swiglu_limit);
  const int64_t inner = shape.intermediate_size;
  for (int expert = 0; expert < shape.num_experts; ++expert) {
    // A matrix, and its bias if there is one: some of the `of` outputs that the tensor has.
    const auto add = [&](const char* name, const char* part, int64_t first, int64_t of,
                         int64_t outputs, int64_t inputs) {
      WeightRef matrix;
      matrix.name = (at / name).text();
      matrix.part = "[" + std::to_string(expert) + part + "]";
      matrix.shape = {outputs, inputs};
      matrix.whole = {of, inputs};
      matrix.first = {first, 0};
      if (stacks.take_turns) matrix.blocks = {1, of / outputs};
      matrix.transposed = true;
      matrix.stack = {shape.num_experts, expert};
      op.weights.push_back(matrix);
      if (!stacks.bias) return;
      WeightRef bias = matrix;
      bias.name += "_bias";
      bias.shape = {outputs};
      bias.whole = {of};
      bias.first = {first};
      bias.transposed = false;
      op.weights.push_back(std::move(bias));
    };
    add("gate_up_proj", ", gate", 0, 2 * inner, inner, x.width());
    add("gate_up_proj", ", up", stacks.take_turns ? 1 : inner, 2 * inner, inner, x.width());
    add("down_proj", "", 0, x.width(), x.width(), inner);
  }
  return x.tracer().Record(std::move(op), at, {x, router}, x.width());
}

Tensor Attention(Tensor q, Tensor k, Tensor v, const ModulePath& at, const TracedAttention& shape) {
  Tracer& tracer = q.tracer();
  const int64_t kv_width = int64_t{shape.num_kv_heads} * shape.head_dim;
  tracer.Require(q.width() == int64_t{shape.num_heads} * shape.head_dim, at,
                 "q of num_heads * head_dim elements");
  tracer.Require(k.width() == kv_width && v.width() == kv_width, at,
                 "k and v of num_kv_heads * head_dim elements");
  tracer.Require(shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0, at,
                 "num_heads to be a multiple of num_kv_heads");
  Op op = MakeOp(OpKind::kAttention);
  op.layer = shape.layer;
  op.num_heads = shape.num_heads;
  op.num_kv_heads = shape.num_kv_heads;
  op.head_dim = shape.head_dim;
  op.scale = static_cast<float>(shape.scale);
  op.window = shape.window;
  op.soft_cap = static_cast<float>(shape.soft_cap);
  if (!shape.sinks.empty()) op.weights.push_back({shape.sinks, {shape.num_heads}});
  return tracer.Record(std::move(op), at, {q, k, v}, q.width());
}

}  // namespace lamina
