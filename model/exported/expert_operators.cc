// Mixtures of experts: a router's softmax, its largest elements, and the operator that
// scripts/export_model.py puts in the place of what the experts compute.
#include <utility>

#include "model/exported/importer.h"

namespace lamina {
namespace {

// Of all mixtures of a program, far above any model's.
constexpr size_t kMaxExpertMatrices = size_t{1} << 20;

// Whether the last axis holds all elements of a token's row.
bool HasWholeRows(const Layout& layout) {
  const int last = layout.num_axes() - 1;
  return last >= 0 && layout.RowAxis() >= 0 && layout.RowAxis() < last &&
         layout.RowColumns().count() == layout.size(last);
}

Layout WithLastSize(const Layout& layout, int64_t size) {
  std::vector<int64_t> shape = layout.Shape();
  shape.back() = size;
  return Layout::Of(shape, layout.RowAxis());
}

}  // namespace

// Checks that `x` is a row per token whose last axis is `axis`.
Status Importer::CheckRows(const Symbol& x, int axis) const {
  if (!x.Is(Symbol::Kind::kTensor))
    return Unimplemented("its argument is no value that follows from the tokens");
  if (axis != x.layout.num_axes() - 1 || !HasWholeRows(x.layout))
    return Unimplemented("it goes over something else than the whole row of a token");
  return OkStatus();
}

Result<Symbol> Importer::Softmax(Arguments& args) {
  const Symbol x = args.Node("self");
  const int axis = args.Axis("dim", x.layout);
  LAMINA_RETURN_IF_ERROR(args.status());
  LAMINA_RETURN_IF_ERROR(CheckRows(x, axis));
  Term* const term = TermOf(x);
  return MakeTensor({.kind = TermKind::kSoftmax, .args = {term}, .width = term->key.width},
                    x.layout.Compact());
}

Result<Symbol> Importer::Largest(Arguments& args) {
  const Symbol x = args.Node("self");
  const int64_t count = args.Integer("k");
  const int axis = args.Axis("dim", x.layout);
  const bool largest = args.Flag("largest");
  LAMINA_RETURN_IF_ERROR(args.status());
  LAMINA_RETURN_IF_ERROR(CheckRows(x, axis));
  Term* const term = TermOf(x);
  if (!largest || count < 1 || count > term->key.width)
    return Unimplemented("it takes the smallest elements, none, or more than there are");
  const Layout layout = WithLastSize(x.layout, count);
  Symbol both;
  both.kind = Symbol::Kind::kSeveral;
  for (const TermKind kind : {TermKind::kLargest, TermKind::kLargestAt})
    both.several.push_back(MakeTensor({.kind = kind, .args = {term}, .width = count}, layout));
  return both;
}

Result<Symbol> Importer::Sum(Arguments& args) {
  const Symbol x = args.Node("self");
  const std::vector<int64_t> dims = args.Integers("dim");
  const bool keeps = args.Flag("keepdim");
  LAMINA_RETURN_IF_ERROR(args.status());
  const int last = x.layout.num_axes() - 1;
  if (!keeps || dims.size() != 1 || (dims[0] != -1 && dims[0] != last))
    return Unimplemented("a sum over anything but the last axis, which is kept");
  LAMINA_RETURN_IF_ERROR(CheckRows(x, last));
  return MakeTensor({.kind = TermKind::kSum, .args = {TermOf(x)}, .width = 1},
                    WithLastSize(x.layout, 1));
}

// A division of what a router chose by its own sum.
Result<Symbol> Importer::Divide(const Symbol& a, const Symbol& b) {
  if (a.Is(Symbol::Kind::kTensor) && b.Is(Symbol::Kind::kTensor) && HasWholeRows(a.layout)) {
    Term* const parts = TermOf(a);
    Term* const sum = TermOf(b);
    if (parts->Is(TermKind::kLargest) && sum->Is(TermKind::kSum) && sum->arg() == parts)
      return MakeTensor({.kind = TermKind::kShares, .args = {parts}, .width = parts->key.width},
                        a.layout.Compact());
  }
  return Unimplemented(
      "a division by something else than a number, or than the sum of what a router chose");
}

// Softmax over all logits, of which the largest count as they are or by their shares; or softmax
// over the largest logits, which are the same shares.
Result<Symbol> Importer::Experts(Arguments& args) {
  const Symbol x = args.Node("self"), index = args.Node("index"), scores = args.Node("scores");
  ExpertMatrices matrices = {args.Nodes("gate"), args.Nodes("up"), args.Nodes("down")};
  LAMINA_RETURN_IF_ERROR(args.status());
  LAMINA_RETURN_IF_ERROR(CheckRows(x, x.layout.num_axes() - 1));
  if (!index.Is(Symbol::Kind::kTensor) || !scores.Is(Symbol::Kind::kTensor))
    return Unimplemented("its experts are not chosen from the token's row");
  Term* const at = TermOf(index);
  Term* score = TermOf(scores);
  const bool by_shares = score->Is(TermKind::kShares);
  if (by_shares) score = score->arg();
  const bool of_all = at->Is(TermKind::kLargestAt) && score->Is(TermKind::kLargest) &&
                      score->arg() == at->arg() && score->arg()->Is(TermKind::kSoftmax);
  const bool of_largest = at->Is(TermKind::kLargestAt) && !by_shares &&
                          score->Is(TermKind::kSoftmax) && score->arg()->Is(TermKind::kLargest) &&
                          score->arg()->arg() == at->arg();
  if (!of_all && !of_largest)
    return Unimplemented("its router is none that weights the largest elements of a softmax");
  Term* const router = of_all ? at->arg()->arg() : at->arg();
  const int64_t width = x.layout.size(x.layout.num_axes() - 1);
  LAMINA_RETURN_IF_ERROR(CheckMatrices(matrices, router->key.width, width));
  experts_.push_back(std::move(matrices));
  return MakeTensor({.kind = TermKind::kExperts,
                     .args = {TermOf(x), router},
                     .width = width,
                     .id = std::ssize(experts_) - 1,
                     .number = of_all && !by_shares ? 1.0 : 0.0,
                     .group = at->key.width},
                    x.layout.Compact());
}

Status Importer::CheckMatrices(const ExpertMatrices& matrices, int64_t num_experts,
                               int64_t width) const {
  int64_t inner = -1;
  for (const auto* list : {&matrices.gate, &matrices.up, &matrices.down}) {
    if (std::ssize(*list) != num_experts ||
        list->size() * 3 * (experts_.size() + 1) > kMaxExpertMatrices)
      return InvalidArgument("it has not one matrix for each logit of its router");
    for (const Symbol& matrix : *list) {
      if (!IsAsStored(matrix) || matrix.number != 0 || matrix.layout.num_axes() != 2)
        return Unimplemented("its matrices are no weights as they stand in the checkpoint");
      const bool is_down = list == &matrices.down;
      const int64_t in = matrix.layout.size(is_down ? 0 : 1);
      const int64_t middle = matrix.layout.size(is_down ? 1 : 0);
      if (inner < 0) inner = middle;
      if (in != width || middle != inner || inner < 1)
        return InvalidArgument("its matrices do not fit each other");
    }
  }
  return OkStatus();
}

Result<Tensor> Importer::EmitExperts(Term* term) {
  LAMINA_ASSIGN_OR_RETURN(const Tensor x, Emit(term->arg(0)));
  LAMINA_ASSIGN_OR_RETURN(const Tensor router, Emit(term->arg(1)));
  const ExpertMatrices& matrices = experts_[static_cast<size_t>(term->key.id)];
  Op op;
  op.kind = OpKind::kExperts;
  op.num_experts = static_cast<int>(matrices.gate.size());
  op.experts_per_token = static_cast<int>(term->key.group);
  op.routing = term->key.number != 0 ? ExpertRouting::kSoftmaxOverAll : ExpertRouting::kSoftmax;
  for (size_t expert = 0; expert < matrices.gate.size(); ++expert) {
    for (const auto* list : {&matrices.gate, &matrices.up, &matrices.down})
      op.weights.push_back(WholeWeight((*list)[expert].node));
  }
  return tracer_.Record(std::move(op), PathOf(term->node), {x, router}, term->key.width);
}

}  // namespace lamina
