// Rotary position embeddings ("RoFormer", section 3.4.2): x cos + rotated(x) sin, with angles that
// are positions times frequencies.
#include <cmath>
#include <utility>

#include "model/exported/importer.h"

namespace lamina {
namespace {

int LastAxis(const Layout& layout) { return layout.num_axes() - 1; }

// How the angles of n pairs lie over a head of 2 n elements. false: all of them, then all again,
// for pairs (i, n + i). true: each one twice, for pairs (2 i, 2 i + 1). Nothing if neither.
std::optional<bool> IsInterleaved(const Layout::Axis& axis, int64_t n) {
  using Axis = Layout::Axis;
  // A single pair is the same in both ways.
  if (axis == (n == 1 ? Axis{{2, 0}} : Axis{{2, 0}, {n, 1}})) return false;
  if (axis == Axis{{n, 1}, {2, 0}}) return true;
  return std::nullopt;
}

// Which elements of BaseOf(term) the term has.
Columns ColumnsOf(const Term* term) {
  return term->Is(TermKind::kColumns) ? term->key.columns : Columns::All(term->key.width);
}
// The term that this one has some elements of; itself if it is no such selection.
Term* BaseOf(Term* term) { return term->Is(TermKind::kColumns) ? term->arg() : term; }

// The elements of whole heads, made of `first`, one half of each head's elements (n of them), and
// the other half, which lie `apart` behind them. The halves are a head's even and odd elements if
// `interleaved`, else its front and back half. Nothing if they are no such halves.
std::optional<Columns> Joined(Columns first, int64_t n, int64_t apart, bool interleaved) {
  const Stride last = first.strides.empty() ? Stride{1, 2} : first.strides.back();
  const bool even_and_odd =
      (interleaved || n == 1) && apart > 0 && last.step == 2 * apart && last.size % n == 0;
  const bool halves = !interleaved && n > 1 && last.size == n && apart == n * last.step;
  // Heads of one pair whose elements lie side by side: the pair is a stride of its own.
  if (n == 1 && !even_and_odd && apart == 1) {
    first.Append({2, 1});
    return first;
  }
  if (!even_and_odd && !halves) return std::nullopt;
  if (!first.strides.empty()) first.strides.pop_back();
  first.Append(halves ? Stride{2 * n, last.step} : Stride{2 * last.size, apart});
  return first;
}

}  // namespace

// Positions times frequencies, where on each axis one of both has size 1: an outer product, or a
// product of a column and a row.
Result<Symbol> Importer::AnglesOf(const Symbol& positions, const Symbol& frequencies) {
  const std::vector<double>& data = program_.nodes[static_cast<size_t>(frequencies.node)].data;
  // Positions with an offset would turn by other angles than kRope does.
  if (data.empty() || !IsInOrder(frequencies) || positions.number != 0)
    return Unimplemented("positions that are scaled by something else than frequencies");
  const int axes = std::max(positions.layout.num_axes(), frequencies.layout.num_axes());
  const auto axis_of = [axes](const Symbol& symbol, int i) {
    const int at = i - (axes - symbol.layout.num_axes());
    return at < 0 ? Layout::Axis() : symbol.layout.axis(at);
  };
  std::vector<Layout::Axis> both;
  for (int i = 0; i < axes; ++i) {
    const Layout::Axis position = axis_of(positions, i), frequency = axis_of(frequencies, i);
    if (!position.empty() && !frequency.empty())
      return Unimplemented("a product of positions that is no outer product");
    both.push_back(position.empty() ? frequency : position);
  }
  Symbol angles;
  angles.kind = Symbol::Kind::kAngles;
  angles.layout = Layout(std::move(both));
  std::vector<float> table(data.begin(), data.end());
  const auto [known, is_new] = table_of_.emplace(table, static_cast<int32_t>(tables_.size()));
  if (is_new) tables_.push_back(std::move(table));
  angles.table = known->second;
  return angles;
}

Result<Symbol> Importer::Angle(Arguments& args) {
  Symbol angles = args.Node("self");
  LAMINA_RETURN_IF_ERROR(args.status());
  if (!angles.Is(Symbol::Kind::kAngles))
    return Unimplemented("its argument is not positions times frequencies");
  angles.kind = node().op == "aten.cos.default" ? Symbol::Kind::kCos : Symbol::Kind::kSin;
  angles.number = 1;
  return angles;
}

Result<Symbol> Importer::TimesTrigonometric(const Symbol& x, const Symbol& factor) {
  const int last = LastAxis(x.layout), rows = x.layout.RowAxis(),
            more = x.layout.num_axes() - factor.layout.num_axes();
  // The angles must have a row per token on the same axis as x, be the same for all heads, and lie
  // over the last axis of both.
  bool fits = rows >= 0 && rows != last && more >= 0 && factor.layout.RowAxis() + more == rows &&
              factor.layout.num_axes() > 0;
  for (int i = 0; fits && i < LastAxis(factor.layout); ++i)
    fits = i == factor.layout.RowAxis() || factor.layout.size(i) == 1;
  const auto num_pairs = static_cast<int64_t>(tables_[static_cast<size_t>(factor.table)].size());
  if (!fits || x.layout.size(last) != 2 * num_pairs)
    return Unimplemented("angles of another shape than what they turn");
  const std::optional<bool> interleaved =
      IsInterleaved(factor.layout.axis(LastAxis(factor.layout)), num_pairs);
  if (!interleaved) return Unimplemented("angles that are not there twice for each pair");
  Term* term = TermOf(x);
  const bool is_sine = factor.Is(Symbol::Kind::kSin);
  // In x cos + rotated(x) sin only rotated elements meet a sine.
  if (is_sine != term->Is(TermKind::kRotated))
    return Unimplemented("a sine or cosine that is no part of a rotation");
  if (is_sine) {
    if (term->key.interleaved != *interleaved)
      return Unimplemented("a rotation of pairs that have different angles");
    term = term->arg();
  }
  return MakeTensor({.kind = is_sine ? TermKind::kTimesSin : TermKind::kTimesCos,
                     .args = {term},
                     .width = term->key.width,
                     .number = factor.number,
                     .group = 2 * num_pairs,
                     .table = factor.table,
                     .interleaved = *interleaved},
                    x.layout.Compact());
}

// -b and a, where a and b are the first and second halves of each head, or its even and odd
// elements.
Result<Symbol> Importer::Rotated(const Symbol& negated, const Symbol& first, bool interleaved) {
  // Elements are compared as columns of the value that they were taken from.
  const Status refused = Unimplemented("tensors that are not the two halves of others");
  if (!negated.Is(Symbol::Kind::kTensor) || !first.Is(Symbol::Kind::kTensor) ||
      !negated.term->Is(TermKind::kNegate))
    return refused;
  Term* const a = TermOf(first);
  Term* const b = TermOf(negated)->arg();
  // All of what was negated must be there, in order.
  if (TermOf(negated) != negated.term || a->key.width != b->key.width || BaseOf(a) != BaseOf(b))
    return refused;
  const int64_t n = first.layout.size(LastAxis(first.layout)),
                apart = ColumnsOf(b).offset - ColumnsOf(a).offset;
  std::optional<Columns> both = ColumnsOf(a).strides == ColumnsOf(b).strides
                                    ? Joined(ColumnsOf(a), n, apart, interleaved)
                                    : std::nullopt;
  if (!both) return refused;
  Term* const x = terms_.MakeColumns(BaseOf(a), *both, now_);
  std::vector<int64_t> shape = first.layout.Shape();
  shape.back() = 2 * n;
  return MakeTensor({.kind = TermKind::kRotated,
                     .args = {x},
                     .width = x->key.width,
                     .interleaved = interleaved && n > 1},
                    Layout::Of(shape, first.layout.RowAxis()));
}

// Heads whose first elements are rotated and whose other elements are as they were. The rotation's
// term is widened to whole heads; kRope leaves alone what is behind its frequencies' pairs.
Result<Symbol> Importer::JoinHeads(const Symbol& turned, const Symbol& rest) {
  const Status refused = Unimplemented("tensors that are not the parts of others");
  if (!turned.Is(Symbol::Kind::kTensor) || !rest.Is(Symbol::Kind::kTensor) ||
      !turned.term->Is(TermKind::kRope))
    return refused;
  Term* const x = turned.term->arg();
  Term* const y = TermOf(rest);
  const int64_t first = turned.layout.size(LastAxis(turned.layout)),
                more = rest.layout.size(LastAxis(rest.layout));
  Columns all = ColumnsOf(x), behind = ColumnsOf(y);
  if (TermOf(turned) != turned.term || first != turned.term->key.group || BaseOf(x) != BaseOf(y))
    return refused;
  // Each head must go on in `rest` where its first elements end.
  if (behind.offset - all.offset != first || all.strides.empty() ||
      all.strides.back() != Stride{first, 1})
    return refused;
  all.strides.pop_back();
  if (more > 1 && (behind.strides.empty() || behind.strides.back() != Stride{more, 1}))
    return refused;
  if (more > 1) behind.strides.pop_back();
  if (all.strides != behind.strides) return refused;
  all.Append({first + more, 1});
  TermKey key = turned.term->key;
  Term* const heads = terms_.MakeColumns(BaseOf(x), all, now_);
  key.args = {heads};
  key.width = heads->key.width;
  key.group = first + more;
  std::vector<int64_t> shape = turned.layout.Shape();
  shape.back() = first + more;
  return MakeTensor(std::move(key), Layout::Of(shape, turned.layout.RowAxis()));
}

Result<Symbol> Importer::Cat(Arguments& args) {
  std::vector<Symbol> parts;
  for (Symbol& part : args.Nodes("tensors")) {
    // A part of no elements adds nothing: x[..., n:] of a head that is rotated as a whole.
    if (!part.HasLayout() || !part.layout.empty()) parts.push_back(std::move(part));
  }
  LAMINA_RETURN_IF_ERROR(args.status());
  if (parts.size() == 1 && parts[0].HasLayout()) return parts[0];
  if (parts.size() != 2 || !parts[0].HasLayout() || !parts[1].HasLayout())
    return Unimplemented("it joins other than two tensors");
  Symbol& first = parts[0];
  const int axis = args.Axis("dim", first.layout);
  LAMINA_RETURN_IF_ERROR(args.status());
  if (axis != LastAxis(first.layout) || first.layout.num_axes() != parts[1].layout.num_axes()) {
    return Unimplemented("it joins along another axis than the last");
  }
  // cat(angles, angles): each pair's angle for both of its elements.
  const bool angles = first.Is(Symbol::Kind::kAngles) || first.IsTrigonometric();
  if (angles) {
    const Symbol& other = parts[1];
    if (first.kind != other.kind || first.table != other.table || first.number != other.number ||
        first.layout != other.layout) {
      return Unimplemented("it joins different angles");
    }
    first.layout = first.layout.Repeat(axis, 2, false);
    return first;
  }
  if (first.Is(Symbol::Kind::kTensor) && first.term->Is(TermKind::kRope))
    return JoinHeads(first, parts[1]);
  return Rotated(first, parts[1], false);
}

// stack(-odd, even) along a new last axis: the pairs lie side by side.
Result<Symbol> Importer::Stack(Arguments& args) {
  const std::vector<Symbol> parts = args.Nodes("tensors");
  const int64_t dim = args.Integer("dim");
  LAMINA_RETURN_IF_ERROR(args.status());
  if (parts.size() != 2 || !parts[0].HasLayout() ||
      (dim != -1 && dim != parts[0].layout.num_axes())) {
    return Unimplemented("it stacks other than two tensors along a last axis");
  }
  LAMINA_ASSIGN_OR_RETURN(Symbol rotated, Rotated(parts[0], parts[1], true));
  std::vector<int64_t> shape = rotated.layout.Shape();
  shape.back() /= 2;
  shape.push_back(2);
  LAMINA_ASSIGN_OR_RETURN(rotated.layout, rotated.layout.Reshape(shape));
  return rotated;
}

}  // namespace lamina
