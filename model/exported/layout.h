// How a tensor of an exported program lies in a graph's value, which has a row of `width` elements
// per token. An export works on tensors of several axes, [1, tokens, heads, head_dim] for example,
// and takes views of them; here a view is only arithmetic and no operator.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"

namespace lamina {

// `size` steps of `step` elements within a row; step 0 repeats the same elements.
struct Stride {
  int64_t size = 1;
  int64_t step = 1;
  friend bool operator==(const Stride&, const Stride&) = default;
  friend auto operator<=>(const Stride&, const Stride&) = default;
};

// Which elements of a row, in order: those that the strides reach from `offset`, the last stride
// fastest.
struct Columns {
  int64_t offset = 0;
  std::vector<Stride> strides;  // joined where that is possible, none of size 1
  friend bool operator==(const Columns&, const Columns&) = default;
  friend auto operator<=>(const Columns&, const Columns&) = default;

  int64_t count() const;
  void Append(Stride last);
  bool AreAll(int64_t width) const { return *this == All(width); }
  static Columns All(int64_t width);
};

// Value type. An axis is made of strides, the first one slowest; one that steps over rows has step
// kRows. Operations fail with kUnimplemented if the result would be no such layout, and with
// kInvalidArgument if they make no sense.
class Layout {
 public:
  static constexpr int64_t kRows = -1;
  using Axis = std::vector<Stride>;  // empty: size 1

  Layout() = default;
  explicit Layout(std::vector<Axis> axes) : axes_(std::move(axes)) {}

  // A value as it is, seen as `shape`, of which axis `rows` steps over rows. -1: none does.
  static Layout Of(std::span<const int64_t> shape, int rows);

  int num_axes() const { return static_cast<int>(axes_.size()); }
  const Axis& axis(int i) const { return axes_[static_cast<size_t>(i)]; }
  int64_t size(int axis) const;
  std::vector<int64_t> Shape() const;
  bool empty() const;  // an axis has size 0

  Result<Layout> Reshape(std::span<const int64_t> shape) const;  // one may be -1
  Result<Layout> Permute(std::span<const int64_t> order) const;
  // 0 <= first <= end <= size.
  Result<Layout> Slice(int axis, int64_t first, int64_t end, int64_t step) const;
  Result<Layout> Expand(std::span<const int64_t> shape) const;  // -1: as it is
  Layout Unsqueeze(int axis) const;
  Layout Squeeze(int axis) const;  // nothing if its size is not 1
  // The whole axis n times, or each element n times.
  Layout Repeat(int axis, int64_t n, bool each) const;
  Layout WithoutLast() const;  // the last axis becomes one of size 1

  // The elements of a row in the axes' order. Repeated ones are there once if `once`.
  Columns RowColumns(bool once = false) const;

  // The same axes over a value that has exactly RowColumns() in their order.
  Layout Compact(bool once = false) const;

  // The axis that steps over rows and nothing else; -1 if there is none or several.
  int RowAxis() const;

  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  std::vector<Axis> axes_;
  int64_t offset_ = 0;
};

// "[1, 32, 4, 8]", for messages.
std::string ShapeText(const Layout& layout);

}  // namespace lamina
