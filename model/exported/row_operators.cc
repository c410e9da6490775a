// Operators that compute the row of a token from rows of the same token; and attention, which reads
// other rows.
#include <cmath>
#include <limits>
#include <utility>

#include "model/exported/importer.h"

namespace lamina {
namespace {

// What torch's rms_norm uses if it is given none.
constexpr float kDefaultEps = std::numeric_limits<float>::epsilon();

Status NotRows(const char* what) {
  return Unimplemented(std::string(what) + " is no value that follows from the tokens");
}

int64_t LastSize(const Layout& layout) {
  return layout.num_axes() == 0 ? 1 : layout.size(layout.num_axes() - 1);
}

// Whether the last axis holds n elements of one row each time.
bool HasRowsOf(const Layout& layout, int64_t n) {
  return n > 0 && LastSize(layout) == n && layout.RowAxis() < layout.num_axes() - 1;
}

}  // namespace

Result<Symbol> Importer::Embedding(Arguments& args) {
  const Symbol table = args.Node("weight"), rows = args.Node("indices");
  LAMINA_RETURN_IF_ERROR(args.status());
  if (!IsAsStored(table) || table.number != 0 || table.layout.num_axes() != 2) {
    return Unimplemented("its table is no weight as it stands in the checkpoint");
  }
  const bool of_tokens = rows.Is(Symbol::Kind::kTokens);
  if (!of_tokens && !rows.Is(Symbol::Kind::kPositions))
    return Unimplemented("it looks up something else than tokens or positions");
  if (rows.layout.RowAxis() < 0) return Unimplemented("it looks up no row per token");
  const int64_t width = table.layout.size(1), first_row = static_cast<int64_t>(rows.number);
  // Positions up to max_positions - 1 will be looked up.
  if (!of_tokens && (first_row < 0 || first_row > table.layout.size(0) - program_.max_positions)) {
    return InvalidArgument("the table has no row for each of the max_positions positions");
  }
  Op op;
  op.kind = of_tokens ? OpKind::kEmbedding : OpKind::kPositionEmbedding;
  op.weights = {WholeWeight(table.node)};
  op.first_row = of_tokens ? 0 : first_row;
  const Tensor input = of_tokens ? tracer_.tokens() : tracer_.positions();
  // The table's row is a new last axis.
  std::vector<int64_t> shape = rows.layout.Shape();
  shape.push_back(width);
  Symbol value = MakeTensor({.kind = TermKind::kValue, .width = width, .id = num_values_++},
                            Layout::Of(shape, rows.layout.RowAxis()));
  value.term->tensor = tracer_.Record(std::move(op), PathOf(now_), {input}, width);
  return value;
}

// A matrix may have been transposed by the program, as in x @ W.t(). Whether the graph's linear
// layer reads it transposed depends on how it is stored.
Result<Symbol> Importer::LinearOf(const Symbol& x, const Symbol& weight, bool in_first,
                                  int32_t bias) {
  if (!x.Is(Symbol::Kind::kTensor)) return NotRows("what it multiplies");
  if (!weight.Is(Symbol::Kind::kWeight) || weight.layout.num_axes() != 2 || weight.number != 0) {
    return Unimplemented("its matrix is no weight as it stands in the checkpoint");
  }
  const int64_t in = weight.layout.size(in_first ? 0 : 1),
                out = weight.layout.size(in_first ? 1 : 0);
  if (bias >= 0 && program_.nodes[static_cast<size_t>(bias)].shape != std::vector<int64_t>{out}) {
    return Unimplemented("its bias has not one element for each output");
  }
  // The product must be over the whole row of a token; over one head at a time would be another
  // operator.
  if (x.layout.RowAxis() < 0 || !HasRowsOf(x.layout, in) || x.layout.RowColumns().count() != in) {
    return Unimplemented("it multiplies " + ShapeText(x.layout) + ", not a row per token of " +
                         std::to_string(in) + " elements");
  }
  const Layout stored = Layout::Of(program_.nodes[static_cast<size_t>(weight.node)].shape, -1);
  const std::vector<int64_t> swap = {1, 0};
  LAMINA_ASSIGN_OR_RETURN(const Layout swapped, stored.Permute(swap));
  if (weight.layout != stored && weight.layout != swapped)
    return Unimplemented("its matrix is a part of a weight");
  const bool stored_in_first = in_first == (weight.layout == stored);
  std::vector<int64_t> shape = x.layout.Shape();
  shape.back() = out;
  return MakeTensor({.kind = TermKind::kLinear,
                     .args = {TermOf(x)},
                     .width = out,
                     .weight = weight.node,
                     .bias = bias,
                     .transposed = stored_in_first},
                    Layout::Of(shape, x.layout.RowAxis()));
}

Result<Symbol> Importer::Linear(Arguments& args) {
  const bool has_mat1 = args.Has("mat1");  // addmm(self, mat1, mat2) is self + mat1 mat2
  const Symbol x = args.Node(has_mat1 ? "mat1" : "input");
  const Symbol weight = args.Node(has_mat1 ? "mat2" : "weight");
  const char* const bias_name = has_mat1 ? "self" : "bias";
  const Symbol bias = args.Has(bias_name) ? args.Node(bias_name) : Symbol();
  LAMINA_RETURN_IF_ERROR(args.status());
  if (has_mat1 && (args.Number("alpha") != 1 || args.Number("beta") != 1))
    return Unimplemented("it scales what it adds");
  if (!bias.Is(Symbol::Kind::kUnused) && (!IsAsStored(bias) || bias.number != 0)) {
    return Unimplemented("its bias is no weight as it stands in the checkpoint");
  }
  return LinearOf(x, weight, has_mat1, bias.node);
}

Result<Symbol> Importer::MatMul(Arguments& args) {
  const Symbol a = args.Node("self"), b = args.Node(args.Has("mat2") ? "mat2" : "other");
  LAMINA_RETURN_IF_ERROR(args.status());
  if (a.Is(Symbol::Kind::kPositions) && b.Is(Symbol::Kind::kConstant)) return AnglesOf(a, b);
  if (b.Is(Symbol::Kind::kPositions) && a.Is(Symbol::Kind::kConstant)) return AnglesOf(b, a);
  return LinearOf(a, b, true, -1);
}

Result<Symbol> Importer::LayerNorm(Arguments& args) {
  const Symbol x = args.Node("input");
  const Symbol weight = args.Has("weight") ? args.Node("weight") : Symbol();
  const Symbol bias = args.Has("bias") ? args.Node("bias") : Symbol();
  const std::vector<int64_t> shape = args.Integers("normalized_shape");
  const double eps = args.Number("eps");
  LAMINA_RETURN_IF_ERROR(args.status());
  if (!x.Is(Symbol::Kind::kTensor)) return NotRows("what it norms");
  if (shape.size() != 1 || !HasRowsOf(x.layout, shape[0]))
    return Unimplemented("it norms over something else than a row or its heads");
  for (const Symbol& part : {weight, bias}) {
    if (!part.Is(Symbol::Kind::kUnused) && (!IsAsStored(part) || part.number != 0)) {
      return Unimplemented("its weight or bias is no weight as it stands in the checkpoint");
    }
  }
  Term* const term = TermOf(x);
  return MakeTensor({.kind = TermKind::kLayerNorm,
                     .args = {term},
                     .width = term->key.width,
                     .number = eps,
                     .group = shape[0],
                     .weight = weight.node,
                     .bias = bias.node},
                    x.layout.Compact());
}

Result<Symbol> Importer::RmsNorm(Arguments& args) {
  const Symbol x = args.Node("input");
  const Symbol weight = args.Has("weight") ? args.Node("weight") : Symbol();
  const std::vector<int64_t> shape = args.Integers("normalized_shape");
  const double eps = args.Has("eps") ? args.Number("eps") : double{kDefaultEps};
  LAMINA_RETURN_IF_ERROR(args.status());
  if (!x.Is(Symbol::Kind::kTensor)) return NotRows("what it norms");
  if (shape.size() != 1 || !HasRowsOf(x.layout, shape[0]))
    return Unimplemented("it norms over something else than a row or its heads");
  if (!weight.Is(Symbol::Kind::kUnused) && !IsAsStored(weight)) {
    return Unimplemented("its weight is no weight as it stands in the checkpoint");
  }
  Term* const term = TermOf(x);
  return MakeTensor({.kind = TermKind::kRmsNorm,
                     .args = {term},
                     .width = term->key.width,
                     .number = eps,
                     .number2 = weight.number,
                     .group = shape[0],
                     .weight = weight.node},
                    x.layout.Compact());
}

Result<Symbol> Importer::Unary(Arguments& args) {
  const Symbol x = args.Node("self");
  LAMINA_RETURN_IF_ERROR(args.status());
  if (!x.Is(Symbol::Kind::kTensor)) return NotRows("its argument");
  const std::string& op = node().op;
  TermKind kind = TermKind::kRelu;
  if (op == "aten.neg.default") kind = TermKind::kNegate;
  if (op == "aten.tanh.default") kind = TermKind::kTanh;
  if (op == "aten.sigmoid.default") kind = TermKind::kSigmoid;
  if (op == "aten.silu.default") kind = TermKind::kSilu;
  if (op == "aten.rsqrt.default") kind = TermKind::kInverseRoot;
  if (op == "aten.gelu.default")
    kind = args.Text("approximate") == "tanh" ? TermKind::kGeluTanh : TermKind::kGelu;
  Term* const term = TermOf(x);
  return MakeTensor({.kind = kind, .args = {term}, .width = term->key.width}, x.layout.Compact());
}

Result<Symbol> Importer::Power(Arguments& args) {
  const Symbol x = args.Node("self");
  const double exponent = args.Number("exponent");
  LAMINA_RETURN_IF_ERROR(args.status());
  if (!x.Is(Symbol::Kind::kTensor)) return NotRows("its argument");
  Term* const term = TermOf(x);
  // x ** -0.5 is rsqrt(x).
  const bool is_root = exponent == -0.5;
  return MakeTensor({.kind = is_root ? TermKind::kInverseRoot : TermKind::kPower,
                     .args = {term},
                     .width = term->key.width,
                     .number = is_root ? 0 : exponent},
                    x.layout.Compact());
}

Result<Symbol> Importer::Mean(Arguments& args) {
  const Symbol x = args.Node("self");
  const std::vector<int64_t> dims = args.Integers("dim");
  const bool keeps = args.Flag("keepdim");
  LAMINA_RETURN_IF_ERROR(args.status());
  if (!x.Is(Symbol::Kind::kTensor)) return NotRows("its argument");
  const int last = x.layout.num_axes() - 1;
  if (!keeps || dims.size() != 1 || (dims[0] != -1 && dims[0] != last) ||
      !HasRowsOf(x.layout, LastSize(x.layout))) {
    return Unimplemented("a mean over anything but the last axis, which is kept");
  }
  Term* const term = TermOf(x);
  const int64_t group = x.layout.size(last);
  return MakeTensor(
      {.kind = TermKind::kMean, .args = {term}, .width = term->key.width / group, .group = group},
      x.layout.Compact().WithoutLast().Compact());
}

Result<Symbol> Importer::Arithmetic(Arguments& args) {
  // "add", "sub", "mul" or "div" of "aten.add.Tensor".
  const std::string op = node().op.substr(5, 3);
  const Symbol a = args.Node("self");
  if (args.Has("alpha") && args.Number("alpha") != 1)
    return Unimplemented("it scales what it adds");
  if (args.Has("rounding_mode")) return Unimplemented("a division that rounds");
  if (!args.IsNode("other")) {
    const double number = args.Number("other");
    LAMINA_RETURN_IF_ERROR(args.status());
    return WithNumber(op, a, number);
  }
  const Symbol b = args.Node("other");
  LAMINA_RETURN_IF_ERROR(args.status());
  // Positions times one number are angles of a single pair.
  if (IsNumber(b) && !a.Is(Symbol::Kind::kPositions)) return WithNumber(op, a, NumberOf(b));
  if (op == "add") return Add(a, b);
  if (op == "sub") return Subtract(a, b);
  if (op == "mul")
    return IsNumber(a) && !b.Is(Symbol::Kind::kPositions) ? WithNumber(op, b, NumberOf(a))
                                                          : Multiply(a, b);
  return Divide(a, b);
}

Result<Symbol> Importer::WithNumber(const std::string& op, Symbol a, double number) {
  if (op == "sub") number = -number;
  if (op == "div") number = 1 / number;
  const bool adds = op == "add" || op == "sub";
  if (!std::isfinite(number)) return InvalidArgument("a division by 0");
  // Adding 0 and multiplying by 1 need no operator.
  if (number == (adds ? 0 : 1)) return a;
  switch (a.kind) {
    case Symbol::Kind::kPositions:
    case Symbol::Kind::kWeight:
      if (!adds) return Unimplemented("a multiple of positions or of a weight");
      a.number += number;
      // It becomes an int64_t, the first row of a table.
      if (std::abs(a.number) > 1e6) return InvalidArgument("an addend of that size");
      return a;
    case Symbol::Kind::kCos:
    case Symbol::Kind::kSin:
      if (adds) return Unimplemented("a sum with a sine");
      a.number *= number;
      return a;
    case Symbol::Kind::kTensor: {
      Term* const term = TermOf(a);
      return MakeTensor({.kind = adds ? TermKind::kAddNumber : TermKind::kScale,
                         .args = {term},
                         .width = term->key.width,
                         .number = number},
                        a.layout.Compact());
    }
    default: return Unimplemented("arithmetic with its first argument");
  }
}

Result<Symbol> Importer::Add(Symbol a, Symbol b) {
  if (a.Is(Symbol::Kind::kWeight)) std::swap(a, b);
  if (b.Is(Symbol::Kind::kWeight)) return AddWeight(a, b);
  if (!a.Is(Symbol::Kind::kTensor) || !b.Is(Symbol::Kind::kTensor))
    return NotRows("one of its arguments");
  if (a.layout.Compact() != b.layout.Compact())
    return Unimplemented("a sum of tensors of different shapes");
  Term* first = TermOf(a);
  Term* second = TermOf(b);
  // x cos + rotated(x) sin, in either order, becomes a rotation if both have the same x and angles.
  if (first->Is(TermKind::kTimesSin)) std::swap(first, second);
  if (first->Is(TermKind::kTimesCos) && second->Is(TermKind::kTimesSin)) {
    TermKey turned = first->key;
    turned.kind = TermKind::kTimesSin;
    if (turned != second->key)
      return Unimplemented("a rotation whose sine and cosine do not belong together");
    turned.kind = TermKind::kRope;
    return MakeTensor(std::move(turned), a.layout.Compact());
  }
  Symbol sum =
      MakeTensor({.kind = TermKind::kAdd, .args = {first, second}, .width = first->key.width},
                 a.layout.Compact());
  if (Term* const regrouped = Regrouped(first, second, terms_, now_)) sum.term = regrouped;
  return sum;
}

// A bias: the term with it replaces the linear layer or norm without it.
Result<Symbol> Importer::AddWeight(const Symbol& a, const Symbol& weight) {
  const bool fits = a.Is(Symbol::Kind::kTensor) && IsAsStored(weight) &&
                    weight.layout.num_axes() == 1 && weight.number == 0 &&
                    HasRowsOf(a.layout, weight.layout.size(0));
  Term* const term = fits ? TermOf(a) : nullptr;
  const bool takes =
      term != nullptr && term->key.bias < 0 &&
      (term->Is(TermKind::kLinear) || term->Is(TermKind::kLayerNorm)) &&
      weight.layout.size(0) == (term->Is(TermKind::kLinear) ? term->key.width : term->key.group);
  if (!takes)
    return Unimplemented("a weight that is added to something else than a linear layer or a norm");
  TermKey key = term->key;
  key.bias = weight.node;
  return MakeTensor(std::move(key), a.layout.Compact());
}

// Only x - mean(x) is known, the first part of a LayerNorm.
Result<Symbol> Importer::Subtract(Symbol a, Symbol b) {
  if (!a.Is(Symbol::Kind::kTensor) || !b.Is(Symbol::Kind::kTensor))
    return NotRows("one of its arguments");
  Term* const x = TermOf(a);
  Term* const mean = TermOf(b);
  if (!mean->Is(TermKind::kMean) || mean->arg() != x ||
      a.layout.Compact().WithoutLast().Compact() != b.layout.Compact()) {
    return Unimplemented("a difference that is not from the own mean");
  }
  return MakeTensor(
      {.kind = TermKind::kCentred, .args = {x}, .width = x->key.width, .group = mean->key.group},
      a.layout.Compact());
}

Result<Symbol> Importer::Multiply(Symbol a, Symbol b) {
  if (a.Is(Symbol::Kind::kConstant)) std::swap(a, b);
  if (a.Is(Symbol::Kind::kPositions) && b.Is(Symbol::Kind::kConstant)) return AnglesOf(a, b);
  if (a.Is(Symbol::Kind::kWeight) || a.IsTrigonometric()) std::swap(a, b);
  if (!a.Is(Symbol::Kind::kTensor)) return NotRows("one of its arguments");
  if (b.Is(Symbol::Kind::kWeight)) return MultiplyWeight(a, b);
  if (b.IsTrigonometric()) return TimesTrigonometric(a, b);
  if (!b.Is(Symbol::Kind::kTensor)) return NotRows("one of its arguments");
  if (a.layout.Compact() == b.layout.Compact()) {
    Term* const first = TermOf(a);
    return MakeTensor(
        {.kind = TermKind::kMul, .args = {first, TermOf(b)}, .width = first->key.width},
        a.layout.Compact());
  }
  // A norm's factor has one element per group and is the smaller one.
  if (b.term->key.width > a.term->key.width) std::swap(a, b);
  std::optional<TermKey> norm;
  if (a.layout.Compact().WithoutLast().Compact() == b.layout.Compact()) {
    Term* const factor = TermOf(b);
    if (factor->Is(TermKind::kSigmoid) && factor->key.width == 1) {
      Term* const gated = TermOf(a);
      return MakeTensor({.kind = TermKind::kSigmoidGate,
                         .args = {factor->arg(), gated},
                         .width = gated->key.width},
                        a.layout.Compact());
    }
    norm = RecognisedNorm(TermOf(a), factor);
  }
  if (!norm) return Unimplemented("a product of tensors of different shapes that is no norm");
  return MakeTensor(std::move(*norm), a.layout.Compact());
}

// A norm's weight: the term with it replaces the norm without it.
Result<Symbol> Importer::MultiplyWeight(const Symbol& a, const Symbol& weight) {
  Term* const term = TermOf(a);
  const bool is_norm =
      term->Is(TermKind::kRmsNorm) || (term->Is(TermKind::kLayerNorm) && weight.number == 0);
  const bool fits = IsAsStored(weight) && weight.layout.num_axes() == 1 &&
                    weight.layout.size(0) == term->key.group &&
                    HasRowsOf(a.layout, term->key.group);
  if (!is_norm || !fits || term->key.weight >= 0 || term->key.bias >= 0) {
    return Unimplemented("a weight that scales something else than a norm");
  }
  TermKey key = term->key;
  key.weight = weight.node;
  key.number2 = weight.number;
  return MakeTensor(std::move(key), a.layout.Compact());
}

// With grouped-query attention the program repeats each key and value head for the query heads of
// its group. Memory nodes need no copies.
Result<Term*> Importer::KeysOrValues(const Symbol& of, int* num_heads) {
  const Layout::Axis& heads = of.layout.axis(1);
  int64_t copies = 1;
  for (size_t i = 0; i < heads.size(); ++i) {
    if (heads[i].step != 0) continue;
    // Lamina's attention shares KV heads among consecutive query heads.
    if (i + 1 != heads.size())
      return Unimplemented("query heads that share keys and values in turn, not in groups");
    copies = heads[i].size;
  }
  *num_heads = static_cast<int>(of.layout.size(1) / copies);
  return terms_.MakeColumns(of.term, of.layout.RowColumns(true), now_);
}

// The mask must be what lamina computes: causal, over the last `window` tokens. The last row shows
// how many those are.
Result<int64_t> Importer::WindowOf(Arguments& args) {
  const bool causal = args.Flag("is_causal");
  if (!args.Has("attn_mask")) {
    if (!causal) return Unimplemented("attention to later tokens");
    return 0;
  }
  const Symbol mask = args.Node("attn_mask");
  LAMINA_RETURN_IF_ERROR(args.status());
  if (!IsInOrder(mask) || causal) return Unimplemented("a mask that is no constant");
  const auto& sees = program_.nodes[static_cast<size_t>(mask.node)].sees;
  const auto rows = static_cast<int64_t>(sees.size());
  const int64_t window = rows == 0 ? 0 : rows - sees.back().first;
  for (int64_t row = 0; row < rows; ++row) {
    const auto [first, end] = sees[static_cast<size_t>(row)];
    if (end != row + 1) return Unimplemented("a mask that is not causal");
    if (first != std::max<int64_t>(0, row + 1 - window))
      return Unimplemented("a mask that is no window of the last tokens");
  }
  if (rows == 0) return Unimplemented("a mask that is not known");
  // The program had no more rows than the window, if there is one; it cannot be told from full
  // attention.
  return window == rows ? 0 : window;
}

Result<Symbol> Importer::Attention(Arguments& args) {
  const Symbol q = args.Node("query"), k = args.Node("key"), v = args.Node("value");
  if (args.Number("dropout_p") != 0) return Unimplemented("dropout");
  LAMINA_ASSIGN_OR_RETURN(const int64_t window, WindowOf(args));
  LAMINA_RETURN_IF_ERROR(args.status());
  for (const Symbol& part : {q, k, v}) {
    const bool is_rows =
        part.Is(Symbol::Kind::kTensor) && part.layout.num_axes() == 4 && part.layout.size(0) == 1;
    if (!is_rows || part.layout.RowAxis() != 2)
      return Unimplemented("its inputs are not [1, heads, tokens, head_dim]");
  }
  const int64_t head_dim = q.layout.size(3), heads = q.layout.size(1);
  if (k.layout.size(3) != head_dim || v.layout.size(3) != head_dim)
    return Unimplemented("heads of different sizes");
  if (head_dim > std::numeric_limits<int>::max() || heads > std::numeric_limits<int>::max())
    return InvalidArgument("heads of that size");
  TracedAttention shape;
  shape.layer = num_attentions_++;
  shape.num_heads = static_cast<int>(heads);
  shape.head_dim = static_cast<int>(head_dim);
  shape.window = {window};
  shape.scale =
      args.Has("scale") ? args.Number("scale") : 1 / std::sqrt(static_cast<double>(head_dim));
  LAMINA_RETURN_IF_ERROR(args.status());
  if (!(shape.scale > 1e-6 && shape.scale < 1e6))
    return Unimplemented("a scale of scores that is not between 1e-6 and 1e6");
  int value_heads = 0;
  LAMINA_ASSIGN_OR_RETURN(Term* const keys, KeysOrValues(k, &shape.num_kv_heads));
  LAMINA_ASSIGN_OR_RETURN(Term* const values, KeysOrValues(v, &value_heads));
  if (value_heads != shape.num_kv_heads || heads % value_heads != 0)
    return Unimplemented("keys and values of different heads");
  LAMINA_ASSIGN_OR_RETURN(const Tensor query, Emit(TermOf(q)));
  LAMINA_ASSIGN_OR_RETURN(const Tensor key, Emit(keys));
  LAMINA_ASSIGN_OR_RETURN(const Tensor value, Emit(values));
  const int64_t width = heads * head_dim;
  // An attention is emitted at once, so that the graph has attentions in the program's order, which
  // `layer` counts.
  Symbol out = MakeTensor({.kind = TermKind::kValue, .width = width, .id = num_values_++},
                          q.layout.Compact());
  out.term->stage = num_attentions_;
  out.term->tensor = lamina::Attention(query, key, value, PathOf(now_), shape);
  return out;
}

}  // namespace lamina
