// Turns terms into operators of the graph, and recognises the operators that are larger than a
// term: gated products, soft caps, and linear layers of which only some outputs are read.
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "model/exported/importer.h"

namespace lamina {
namespace {

// Emit recurses through the terms between two attentions, and a file must not be able to exhaust
// the stack.
constexpr int kMaxDepth = 500;

Op NewOp(OpKind kind) {
  Op op;
  op.kind = kind;
  return op;
}

// A linear layer is named after its weight: "layers.0.mlp.fc1.weight" belongs to
// "layers.0.mlp.fc1".
std::string WithoutWeight(const std::string& name) {
  constexpr std::string_view kSuffix = ".weight";
  return name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : name;
}

// What is missing in the graph for a term that stands outside of any pattern.
const char* Describe(TermKind kind) {
  switch (kind) {
    case TermKind::kAddNumber: return "a number that is added to a row";
    case TermKind::kPower: return "a power";
    case TermKind::kNegate: return "a change of sign";
    case TermKind::kTanh: return "a tanh outside of a GELU or a soft cap";
    case TermKind::kSigmoid: return "a sigmoid outside of a SiLU";
    case TermKind::kSoftmax:
    case TermKind::kSum:
    case TermKind::kLargest:
    case TermKind::kLargestAt:
    case TermKind::kShares: return "a part of a router without its experts";
    case TermKind::kMean:
    case TermKind::kCentred:
    case TermKind::kInverseRoot: return "a mean or root outside of a norm";
    default: return "half of a rotation";
  }
}

}  // namespace

ModulePath Importer::PathOf(int32_t index) const {
  const ExportedNode& at = program_.nodes[static_cast<size_t>(index)];
  return ModulePath(at.module.empty() ? at.name : at.module + "." + at.name);
}

WeightRef Importer::WholeWeight(int32_t index) const {
  const ExportedNode& weight = program_.nodes[static_cast<size_t>(index)];
  return {.name = weight.tensor, .shape = weight.shape};
}

Result<Tensor> Importer::Emit(Term* term) {
  if (term->tensor) return *term->tensor;
  if (++depth_ > kMaxDepth) return Unimplemented("too many operators between two attentions");
  Result<Tensor> emitted = EmitNew(term);
  --depth_;
  if (emitted.ok()) term->tensor = *emitted;
  return emitted;
}

// Kinds that are only parts of patterns have no case here: a term of such a kind is emitted only if
// no pattern took it up, and is refused.
Result<Tensor> Importer::EmitNew(Term* term) {
  const auto unary = [&](OpKind kind) -> Result<Tensor> {
    LAMINA_ASSIGN_OR_RETURN(const Tensor x, Emit(term->arg()));
    return tracer_.Record(NewOp(kind), PathOf(term->node), {x}, term->key.width);
  };
  switch (term->key.kind) {
    case TermKind::kLinear: return EmitLinear(term, Columns::All(term->key.width), term->node);
    case TermKind::kColumns: return EmitColumns(term);
    case TermKind::kMul: return EmitProduct(term);
    case TermKind::kScale: return EmitScale(term);
    case TermKind::kSilu: return unary(OpKind::kSilu);
    case TermKind::kGelu: return unary(OpKind::kGelu);
    case TermKind::kGeluTanh: return unary(OpKind::kGeluTanh);
    case TermKind::kRelu: return unary(OpKind::kRelu);
    case TermKind::kRmsNorm:
    case TermKind::kLayerNorm: return EmitNorm(term);
    case TermKind::kRope: return EmitRope(term);
    case TermKind::kExperts: return EmitExperts(term);
    case TermKind::kSigmoidGate: {
      LAMINA_ASSIGN_OR_RETURN(const Tensor gate, Emit(term->arg(0)));
      LAMINA_ASSIGN_OR_RETURN(const Tensor x, Emit(term->arg(1)));
      return SigmoidGate(gate, x, PathOf(term->node));
    }
    case TermKind::kAdd: {
      LAMINA_ASSIGN_OR_RETURN(const Tensor a, Emit(term->arg(0)));
      LAMINA_ASSIGN_OR_RETURN(const Tensor b, Emit(term->arg(1)));
      return lamina::Add(a, b, PathOf(term->node));
    }
    default: break;
  }
  // The error comes from where the term was made, not from the attention that needs it now.
  failed_node_ = term->node;
  return Unimplemented(Describe(term->key.kind));
}

// Rows of the weight are outputs of the linear layer, so a layer of which only some outputs are
// read is a smaller layer that reads those rows.
Result<Tensor> Importer::EmitLinear(Term* linear, const Columns& columns, int32_t at) {
  LAMINA_ASSIGN_OR_RETURN(const Tensor x, Emit(linear->arg()));
  const TermKey& key = linear->key;
  const size_t levels = columns.strides.size();
  // WeightRef can describe one run of rows, rows at an even distance, and blocks of rows at an even
  // distance: q of a fused projection whose heads have q, k and v side by side.
  const bool blocks = levels == 2 && columns.strides[1].step == 1 &&
                      columns.strides[0].step >= columns.strides[1].size;
  if (levels > 2 || (levels == 1 && columns.strides[0].step < 1) || (levels == 2 && !blocks)) {
    failed_node_ = at;
    return Unimplemented("it takes outputs of a linear layer out of order");
  }
  Op op = NewOp(OpKind::kLinear);
  op.weights.push_back(WholeWeight(key.weight));
  op.weights[0].shape = {key.width, x.width()};
  op.weights[0].transposed = key.transposed;
  if (key.bias >= 0) op.weights.push_back(WholeWeight(key.bias));
  std::string part;
  if (!columns.AreAll(key.width)) {
    // One stride {n, 1}: n rows that follow each other. {n, step}: n single rows. {n, step},
    // {block, 1}: n blocks of rows.
    const Stride outer = levels == 0 ? Stride{1, 1} : columns.strides[0];
    const int64_t block = blocks ? columns.strides[1].size : 1;
    const bool in_one_piece = !blocks && outer.step == 1;
    part = in_one_piece ? fmt::format("[{}:{}]", columns.offset, columns.offset + outer.size)
                        : fmt::format("[{}:{} of each {}, {} in all]", columns.offset,
                                      columns.offset + block, outer.step, columns.count());
    for (WeightRef& weight : op.weights) {
      weight.whole = weight.shape;
      weight.first.assign(weight.shape.size(), 0);
      weight.first[0] = columns.offset;
      weight.shape[0] = columns.count();
      weight.part = part;
      if (!in_one_piece) weight.blocks = {block, outer.step};
    }
  }
  // The tensor in the other orientation is another weight once it is loaded.
  if (key.transposed) op.weights[0].part += "^T";
  return tracer_.Record(std::move(op),
                        ModulePath(WithoutWeight(WholeWeight(key.weight).name) + part), {x},
                        columns.count());
}

Result<Tensor> Importer::EmitColumns(Term* term) {
  Term* const of = term->arg();
  if (of->Is(TermKind::kLinear)) return EmitLinear(of, term->key.columns, term->node);
  failed_node_ = term->node;
  return Unimplemented("it takes apart something else than the output of a linear layer");
}

Result<Tensor> Importer::EmitProduct(Term* term) {
  for (const auto& [gate, up] :
       {std::pair(term->arg(0), term->arg(1)), std::pair(term->arg(1), term->arg(0))}) {
    // A gate that is already an operator of the graph is needed by itself too, and is not computed
    // twice.
    if (gate->tensor || (!gate->Is(TermKind::kSilu) && !gate->Is(TermKind::kGeluTanh))) continue;
    LAMINA_ASSIGN_OR_RETURN(const Tensor x, Emit(gate->arg()));
    LAMINA_ASSIGN_OR_RETURN(const Tensor factor, Emit(up));
    const ModulePath at = PathOf(term->node);
    return gate->Is(TermKind::kSilu) ? SiluMul(x, factor, at) : GeluMul(x, factor, at);
  }
  LAMINA_ASSIGN_OR_RETURN(const Tensor a, Emit(term->arg(0)));
  LAMINA_ASSIGN_OR_RETURN(const Tensor b, Emit(term->arg(1)));
  return Mul(a, b, PathOf(term->node));
}

// Either cap * tanh(x / cap), a soft cap, or just a multiple.
Result<Tensor> Importer::EmitScale(Term* term) {
  const double cap = term->key.number;
  Term* const tanh = term->arg();
  if (cap > 0 && tanh->Is(TermKind::kTanh) && tanh->arg()->Is(TermKind::kScale)) {
    Term* const inner = tanh->arg();
    // The two factors are inverse to each other but for the rounding of the division in the export.
    if (std::abs(inner->key.number * cap - 1) < 1e-6) {
      LAMINA_ASSIGN_OR_RETURN(const Tensor x, Emit(inner->arg()));
      return SoftCap(x, PathOf(term->node), cap);
    }
  }
  LAMINA_ASSIGN_OR_RETURN(const Tensor x, Emit(tanh));
  return Scale(x, PathOf(term->node), cap);
}

Result<Tensor> Importer::EmitNorm(Term* term) {
  const TermKey& key = term->key;
  const bool by_head = key.group != key.width;
  const bool is_rms = term->Is(TermKind::kRmsNorm);
  if (by_head && !is_rms) {
    failed_node_ = term->node;
    return Unimplemented("a LayerNorm of each head by itself");
  }
  LAMINA_ASSIGN_OR_RETURN(const Tensor x, Emit(term->arg()));
  Op op = NewOp(!is_rms ? OpKind::kLayerNorm : by_head ? OpKind::kHeadNorm : OpKind::kRmsNorm);
  op.eps = static_cast<float>(key.number);
  if (key.weight >= 0) op.weights.push_back(WholeWeight(key.weight));
  if (key.bias >= 0) op.weights.push_back(WholeWeight(key.bias));
  for (const WeightRef& weight : op.weights) {
    // The operators of the graph take a bias only behind a weight.
    if (weight.shape == std::vector<int64_t>{key.group} && (key.weight >= 0 || key.bias < 0))
      continue;
    failed_node_ = term->node;
    return Unimplemented("a norm whose weights are not one for each element");
  }
  // The weight that is loaded has the addend in it, so it is another one than the bare tensor.
  if (key.weight >= 0 && key.number2 != 0) {
    op.weights[0].plus = static_cast<float>(key.number2);
    op.weights[0].part = fmt::format("+{}", key.number2);
  }
  if (by_head) {
    op.num_heads = static_cast<int>(key.width / key.group);
    op.head_dim = static_cast<int>(key.group);
  }
  return tracer_.Record(std::move(op), PathOf(term->node), {x}, key.width);
}

Result<Tensor> Importer::EmitRope(Term* term) {
  const TermKey& key = term->key;
  RopeHeads heads;
  heads.num_heads = static_cast<int>(key.width / key.group);
  heads.head_dim = static_cast<int>(key.group);
  heads.inverse_frequencies = tables_[static_cast<size_t>(key.table)];
  heads.interleaved = key.interleaved;
  // The factor would be applied behind the rotation, to the elements that do not rotate too.
  if (key.number != 1 && key.group != 2 * std::ssize(heads.inverse_frequencies)) {
    failed_node_ = term->node;
    return Unimplemented("a rotation of a part of a head that scales it");
  }
  LAMINA_ASSIGN_OR_RETURN(const Tensor x, Emit(term->arg()));
  const Tensor turned = Rope(x, tracer_.positions(), PathOf(term->node), heads);
  return key.number == 1 ? turned : Scale(turned, PathOf(term->node) / "scale", key.number);
}

}  // namespace lamina
