// How a tensor of an exported program lies in a value of a graph, which has a row of `width`
// elements per token. An export works on tensors of several axes, [1, tokens, heads, head_dim] for
// example, and takes views of them. Here a view computes nothing: it is arithmetic on strides.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"

namespace lamina {

// `size` steps of `step` elements within a row. Step 0 repeats the same elements.
struct Stride {
  int64_t size = 1;
  int64_t step = 1;
  friend bool operator==(const Stride&, const Stride&) = default;
  friend auto operator<=>(const Stride&, const Stride&) = default;
};

// Which elements of a row, and in which order: those that the strides reach from `offset`, the last
// stride fastest.
struct Columns {
  int64_t offset = 0;
  // In normal form: joined where one continues the other, none of size 1.
  std::vector<Stride> strides;
  friend bool operator==(const Columns&, const Columns&) = default;
  friend auto operator<=>(const Columns&, const Columns&) = default;

  // Number of elements.
  int64_t count() const;
  // Adds an innermost stride, and keeps the normal form.
  void Append(Stride last);
  bool AreAll(int64_t width) const { return *this == All(width); }
  static Columns All(int64_t width);
};

// The axes of a tensor and where they step in a row. A value type. An axis is a list of strides,
// the first one slowest; one that steps over rows has step kRows. The operations that return a
// Result fail with kUnimplemented if there is no such layout for what they are asked for, and with
// kInvalidArgument if it makes no sense for the shape.
class Layout {
 public:
  // The step of a stride that goes from row to row instead of through a row.
  static constexpr int64_t kRows = -1;
  using Axis = std::vector<Stride>;  // empty: size 1

  Layout() = default;
  explicit Layout(std::vector<Axis> axes) : axes_(std::move(axes)) {}

  // The layout of a whole value in order, seen as `shape`, whose axis `rows` steps over rows (-1:
  // none does).
  static Layout Of(std::span<const int64_t> shape, int rows);

  int num_axes() const { return static_cast<int>(axes_.size()); }
  const Axis& axis(int i) const { return axes_[static_cast<size_t>(i)]; }
  // REQUIRES: 0 <= axis < num_axes(), here and below.
  int64_t size(int axis) const;
  std::vector<int64_t> Shape() const;
  // Whether an axis has size 0.
  bool empty() const;

  // One size may be -1 and follows from the others.
  Result<Layout> Reshape(std::span<const int64_t> shape) const;
  // Axis i of the result is axis order[i] of this.
  Result<Layout> Permute(std::span<const int64_t> order) const;
  // Every `step`-th element of [first, end) of an axis. REQUIRES: 0 <= first <= end <= size, step
  // >= 1.
  Result<Layout> Slice(int axis, int64_t first, int64_t end, int64_t step) const;
  // Axes of size 1 repeat their element; -1 keeps a size; further axes are added in front.
  Result<Layout> Expand(std::span<const int64_t> shape) const;
  // Inserts an axis of size 1 before `axis`.
  Layout Unsqueeze(int axis) const;
  // Removes the axis if its size is 1.
  Layout Squeeze(int axis) const;
  // The whole axis n times one after the other or, if `each`, each of its elements n times.
  Layout Repeat(int axis, int64_t n, bool each) const;
  // The last axis becomes one of size 1.
  Layout WithoutLast() const;

  // The elements of a row in the order of the axes. Elements that strides of step 0 repeat are
  // listed as often as they are repeated, or once if `once`.
  Columns RowColumns(bool once = false) const;

  // The same axes over a value that has exactly the elements RowColumns(once), in that order.
  Layout Compact(bool once = false) const;

  // The axis that steps over rows and over nothing else. -1 if there is none, or several.
  int RowAxis() const;

  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  std::vector<Axis> axes_;
  int64_t offset_ = 0;
};

// "[1, 32, 4, 8]".
std::string ShapeText(const Layout& layout);

}  // namespace lamina
