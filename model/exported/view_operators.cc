// Operators that only look at a tensor in another way, and compute nothing.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "model/exported/importer.h"

namespace lamina {
namespace {

// Parts that one tensor may be split into: each is a symbol of its own.
constexpr int64_t kMostParts = 1 << 10;
// Far beyond any axis, and exact as a double.
constexpr double kMostIndex = 1e15;

// The symbol with another layout, or the reason why there is no such layout.
Result<Symbol> Seen(Symbol symbol, Result<Layout> layout) {
  if (!layout.ok()) return layout.status();
  symbol.layout = std::move(*layout);
  return symbol;
}

// The symbol, if it is one tensor.
Result<Symbol> WithLayout(Symbol symbol) {
  if (!symbol.HasLayout()) return Unimplemented("it reads several outputs at once");
  return symbol;
}

// An end of a slice as PyTorch reads it: from behind if it is negative, and within [0, size].
int64_t Clamped(int64_t at, int64_t size) {
  return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
}

}  // namespace

Result<Symbol> Importer::Same(Arguments& args) { return WithLayout(args.Node("self")); }

Result<Symbol> Importer::Convert(Arguments& args) {
  const std::string dtype = args.Text("dtype");
  Symbol symbol = args.Node("self");
  // Everything is computed in fp32, so a cast between float types is nothing. One to integers would
  // round, unless it is of integers already.
  const bool real = dtype.empty() || dtype.starts_with("torch.float") || dtype == "torch.bfloat16";
  const bool whole = symbol.Is(Symbol::Kind::kTokens) || symbol.Is(Symbol::Kind::kPositions);
  if (!real && !(whole && (dtype == "torch.int64" || dtype == "torch.int32")))
    return Unimplemented("a conversion to " + dtype);
  return WithLayout(std::move(symbol));
}

Result<Symbol> Importer::Reshape(Arguments& args) {
  LAMINA_ASSIGN_OR_RETURN(Symbol symbol, WithLayout(args.Node("self")));
  const std::vector<int64_t> shape = args.Integers(args.Has("size") ? "size" : "shape");
  LAMINA_RETURN_IF_ERROR(args.status());
  Result<Layout> layout = symbol.layout.Reshape(shape);
  return Seen(std::move(symbol), std::move(layout));
}

Result<Symbol> Importer::Flatten(Arguments& args) {
  LAMINA_ASSIGN_OR_RETURN(Symbol symbol, WithLayout(args.Node("self")));
  const int first = args.Axis("start_dim", symbol.layout);
  const int last =
      args.Has("end_dim") ? args.Axis("end_dim", symbol.layout) : symbol.layout.num_axes() - 1;
  LAMINA_RETURN_IF_ERROR(args.status());
  std::vector<int64_t> shape;
  for (int axis = 0; axis < symbol.layout.num_axes(); ++axis) {
    const int64_t size = symbol.layout.size(axis);
    if (axis > first && axis <= last) {
      shape.back() *= size;
    } else {
      shape.push_back(size);
    }
  }
  Result<Layout> layout = symbol.layout.Reshape(shape);
  return Seen(std::move(symbol), std::move(layout));
}

Result<Symbol> Importer::Transpose(Arguments& args) {
  LAMINA_ASSIGN_OR_RETURN(Symbol symbol, WithLayout(args.Node("self")));
  std::vector<int64_t> order(static_cast<size_t>(symbol.layout.num_axes()));
  std::iota(order.begin(), order.end(), 0);
  if (args.Has("dim0")) {
    const int a = args.Axis("dim0", symbol.layout), b = args.Axis("dim1", symbol.layout);
    LAMINA_RETURN_IF_ERROR(args.status());
    std::swap(order[static_cast<size_t>(a)], order[static_cast<size_t>(b)]);
  } else {
    // aten.t has no dimensions: it swaps both axes of a matrix.
    std::ranges::reverse(order);
  }
  Result<Layout> layout = symbol.layout.Permute(order);
  return Seen(std::move(symbol), std::move(layout));
}

Result<Symbol> Importer::Permute(Arguments& args) {
  LAMINA_ASSIGN_OR_RETURN(Symbol symbol, WithLayout(args.Node("self")));
  std::vector<int64_t> order = args.Integers("dims");
  LAMINA_RETURN_IF_ERROR(args.status());
  for (int64_t& axis : order) axis += axis < 0 ? symbol.layout.num_axes() : 0;
  Result<Layout> layout = symbol.layout.Permute(order);
  return Seen(std::move(symbol), std::move(layout));
}

Result<Symbol> Importer::Unsqueeze(Arguments& args) {
  LAMINA_ASSIGN_OR_RETURN(Symbol symbol, WithLayout(args.Node("self")));
  const int64_t given = args.Integer("dim"), axes = symbol.layout.num_axes() + 1;
  const int64_t axis = given < 0 ? given + axes : given;
  LAMINA_RETURN_IF_ERROR(args.status());
  if (axis < 0 || axis >= axes)
    return InvalidArgument("its argument \"dim\" is not one of the axes");
  symbol.layout = symbol.layout.Unsqueeze(static_cast<int>(axis));
  return symbol;
}

Result<Symbol> Importer::Squeeze(Arguments& args) {
  LAMINA_ASSIGN_OR_RETURN(Symbol symbol, WithLayout(args.Node("self")));
  const int axis = args.Axis("dim", symbol.layout);
  LAMINA_RETURN_IF_ERROR(args.status());
  symbol.layout = symbol.layout.Squeeze(axis);
  return symbol;
}

Result<Symbol> Importer::Expand(Arguments& args) {
  LAMINA_ASSIGN_OR_RETURN(Symbol symbol, WithLayout(args.Node("self")));
  const std::vector<int64_t> shape = args.Integers("size");
  LAMINA_RETURN_IF_ERROR(args.status());
  Result<Layout> layout = symbol.layout.Expand(shape);
  return Seen(std::move(symbol), std::move(layout));
}

Result<Symbol> Importer::SliceOf(Symbol of, int axis, int64_t first, int64_t end, int64_t step) {
  Result<Layout> layout = of.layout.Slice(axis, first, std::max(first, end), step);
  return Seen(std::move(of), std::move(layout));
}

Result<Symbol> Importer::Slice(Arguments& args) {
  LAMINA_ASSIGN_OR_RETURN(Symbol symbol, WithLayout(args.Node("self")));
  const int axis = args.Axis("dim", symbol.layout);
  LAMINA_RETURN_IF_ERROR(args.status());
  const int64_t size = symbol.layout.size(axis);
  const int64_t first = args.Has("start") ? Clamped(args.Integer("start"), size) : 0;
  const int64_t end = args.Has("end") ? Clamped(args.Integer("end"), size) : size;
  const int64_t step = args.Integer("step");
  LAMINA_RETURN_IF_ERROR(args.status());
  if (step < 1) return InvalidArgument("its argument \"step\" is not positive");
  return SliceOf(std::move(symbol), axis, first, end, step);
}

Result<Symbol> Importer::Select(Arguments& args) {
  LAMINA_ASSIGN_OR_RETURN(Symbol symbol, WithLayout(args.Node("self")));
  const int axis = args.Axis("dim", symbol.layout);
  const int64_t given = args.Integer("index");
  LAMINA_RETURN_IF_ERROR(args.status());
  const int64_t size = symbol.layout.size(axis), index = given < 0 ? given + size : given;
  if (index < 0 || index >= size)
    return InvalidArgument("its argument \"index\" is outside of the axis");
  LAMINA_ASSIGN_OR_RETURN(symbol, SliceOf(std::move(symbol), axis, index, index + 1, 1));
  symbol.layout = symbol.layout.Squeeze(axis);
  return symbol;
}

// Picks the elements of one axis that a constant lists. They must follow each other in even steps,
// so that the result is a view.
Result<Symbol> Importer::Index(Arguments& args) {
  LAMINA_ASSIGN_OR_RETURN(Symbol symbol, WithLayout(args.Node("self")));
  const std::vector<Symbol> indices = args.Nodes("indices");
  LAMINA_RETURN_IF_ERROR(args.status());
  int axis = -1;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i].Is(Symbol::Kind::kUnused)) continue;
    if (axis >= 0) return Unimplemented("it picks elements of several axes");
    axis = static_cast<int>(i);
  }
  if (axis < 0 || axis >= symbol.layout.num_axes())
    return InvalidArgument("its argument \"indices\" is none of the axes");
  const Symbol& list = indices[static_cast<size_t>(axis)];
  const std::vector<double>& picked =
      program_.nodes[static_cast<size_t>(std::max(list.node, 0))].data;
  const bool is_list = IsInOrder(list) && list.layout.num_axes() == 1 && !picked.empty();
  if (!is_list ||
      !std::ranges::all_of(picked, [](double at) { return std::abs(at) < kMostIndex; })) {
    return Unimplemented("it picks elements by value");
  }
  const int64_t size = symbol.layout.size(axis);
  const auto at = [&](size_t i) {
    return static_cast<int64_t>(picked[i]) + (picked[i] < 0 ? size : 0);
  };
  const int64_t first = at(0), last = at(picked.size() - 1),
                step = picked.size() > 1 ? at(1) - first : 1;
  if (first < 0 || last < first || last >= size || step < 1)
    return Unimplemented("it picks elements out of order");
  for (size_t i = 0; i < picked.size(); ++i) {
    if (at(i) != first + static_cast<int64_t>(i) * step)
      return Unimplemented("it picks elements in uneven steps");
  }
  return SliceOf(std::move(symbol), axis, first, last + 1, step);
}

Result<Symbol> Importer::Split(Arguments& args) {
  LAMINA_ASSIGN_OR_RETURN(const Symbol symbol, WithLayout(args.Node("self")));
  const int axis = args.Axis("dim", symbol.layout);
  LAMINA_RETURN_IF_ERROR(args.status());
  const int64_t size = symbol.layout.size(axis);
  std::vector<int64_t> sizes;
  if (args.Has("split_sizes")) {
    sizes = args.Integers("split_sizes");
  } else {
    const int64_t each = args.Integer("split_size");
    // Checked before the loop, which a tiny part of a huge axis would keep busy.
    if (each < 1 || size / each > kMostParts)
      return InvalidArgument("its argument \"split_size\" is not positive or too small");
    for (int64_t first = 0; first < size; first += each)
      sizes.push_back(std::min(each, size - first));
  }
  LAMINA_RETURN_IF_ERROR(args.status());
  if (std::ssize(sizes) > kMostParts)
    return InvalidArgument("its argument \"split_sizes\" has more than 1024 parts");
  Symbol parts;
  parts.kind = Symbol::Kind::kSeveral;
  int64_t first = 0;
  for (const int64_t part : sizes) {
    if (part < 0 || part > size - first)
      return InvalidArgument("its parts are larger than the tensor");
    LAMINA_ASSIGN_OR_RETURN(Symbol made, SliceOf(symbol, axis, first, first + part, 1));
    parts.several.push_back(std::move(made));
    first += part;
  }
  return parts;
}

Result<Symbol> Importer::GetItem(Arguments& args) {
  const Symbol several = args.Node("self");
  const int64_t index = args.Integer("index");
  LAMINA_RETURN_IF_ERROR(args.status());
  if (index < 0 || index >= std::ssize(several.several))
    return InvalidArgument("there is no such output");
  return several.several[static_cast<size_t>(index)];
}

Result<Symbol> Importer::RepeatEach(Arguments& args) {
  LAMINA_ASSIGN_OR_RETURN(Symbol symbol, WithLayout(args.Node("self")));
  const int axis = args.Axis("dim", symbol.layout);
  const int64_t n = args.Integer("repeats");
  LAMINA_RETURN_IF_ERROR(args.status());
  // No size of the file is above 2^40, so that a product with n fits in 64 bits.
  if (n < 1 || n > (1 << 20)) return InvalidArgument("its argument \"repeats\" is not positive");
  symbol.layout = symbol.layout.Repeat(axis, n, true);
  return symbol;
}

}  // namespace lamina
