#include "model/exported/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace lamina {
namespace {

int64_t SizeOf(const Layout::Axis& axis) {
  int64_t size = 1;
  for (const Stride& stride : axis) size *= stride.size;
  return size;
}

// Elements of any tensor, repeated ones among them.
constexpr int64_t kMostElements = int64_t{1} << 40;

// The product of all sizes, or a number above kMostElements if it overflows.
int64_t Product(const std::vector<Layout::Axis>& axes) {
  int64_t product = 1;
  for (const Layout::Axis& axis : axes) {
    if (__builtin_mul_overflow(product, SizeOf(axis), &product)) return kMostElements + 1;
  }
  return product;
}

// Keeps strides in normal form, so that equal layouts compare equal: a stride of size 1 is dropped,
// and two are joined where the outer one steps on to where the inner one ends.
void AppendJoined(std::vector<Stride>& strides, Stride next) {
  if (next.size == 1) return;
  if (!strides.empty()) {
    Stride& last = strides.back();
    const bool both_rows = last.step == Layout::kRows && next.step == Layout::kRows;
    const bool goes_on = last.step != Layout::kRows && next.step != Layout::kRows &&
                         last.step == next.step * next.size;
    if (both_rows || goes_on) {
      last = {last.size * next.size, next.step};
      return;
    }
  }
  strides.push_back(next);
}

Layout::Axis Joined(const Layout::Axis& axis) {
  Layout::Axis joined;
  for (const Stride& stride : axis) AppendJoined(joined, stride);
  return joined;
}

// Every step-th of the elements [first, end) of an axis. What is skipped in front is added to
// `offset`. Nothing if strides cannot express that.
std::optional<Layout::Axis> SliceAxis(std::span<const Stride> axis, int64_t first, int64_t end,
                                      int64_t step, int64_t& offset) {
  if (axis.empty()) return Layout::Axis();  // size 1: all of it, as the caller has checked
  const Stride outer = axis.front();
  const std::span<const Stride> inner = axis.subspan(1);
  const int64_t inner_size = SizeOf({inner.begin(), inner.end()});
  const bool whole = first == 0 && end == outer.size * inner_size && step == 1;
  if (whole) return Layout::Axis(axis.begin(), axis.end());
  // A part of the rows would be a value of fewer rows, and a graph has none.
  if (outer.step == Layout::kRows) return std::nullopt;
  if (inner.empty()) {
    offset += first * outer.step;
    return Layout::Axis{{(end - first + step - 1) / step, outer.step * step}};
  }
  // The range lies within one step of the outer stride, which becomes a part of the offset.
  if (first / inner_size == (end - 1) / inner_size) {
    const int64_t at = first / inner_size;
    offset += at * outer.step;
    return SliceAxis(inner, first - at * inner_size, end - at * inner_size, step, offset);
  }
  // The range must consist of whole inner runs now; any other one would need two strides in a row.
  if (step != 1 || first % inner_size != 0 || end % inner_size != 0) return std::nullopt;
  offset += first / inner_size * outer.step;
  Layout::Axis sliced = {{(end - first) / inner_size, outer.step}};
  sliced.insert(sliced.end(), inner.begin(), inner.end());
  return sliced;
}

// The shape with the size that its -1 stands for. Nothing if it has another number of elements.
std::optional<std::vector<int64_t>> Resolved(std::span<const int64_t> shape, int64_t elements) {
  std::vector<int64_t> sizes(shape.begin(), shape.end());
  int64_t known = 1;
  int unknown = 0;
  for (const int64_t size : sizes) {
    if (size < -1 || size > elements) return std::nullopt;
    if (size == -1) ++unknown;
    if (size >= 0 && __builtin_mul_overflow(known, size, &known)) return std::nullopt;
  }
  if (unknown > 1 || known == 0 || elements % known != 0) return std::nullopt;
  if (unknown == 1) std::ranges::replace(sizes, int64_t{-1}, elements / known);
  if (unknown == 0 && known != elements) return std::nullopt;
  return sizes;
}

std::string Text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace

int64_t Columns::count() const { return SizeOf(strides); }

void Columns::Append(Stride last) { AppendJoined(strides, last); }

Columns Columns::All(int64_t width) {
  Columns all;
  if (width != 1) all.strides = {{width, 1}};
  return all;
}

Layout Layout::Of(std::span<const int64_t> shape, int rows) {
  Layout layout;
  layout.axes_.resize(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    const bool is_rows = static_cast<int>(i) == rows;
    if (shape[i] != 1) layout.axes_[i] = {{shape[i], is_rows ? kRows : step}};
    if (!is_rows) step *= shape[i];
  }
  return layout;
}

int64_t Layout::size(int axis) const { return SizeOf(axes_[static_cast<size_t>(axis)]); }

std::vector<int64_t> Layout::Shape() const {
  std::vector<int64_t> shape;
  for (const Axis& axis : axes_) shape.push_back(SizeOf(axis));
  return shape;
}

bool Layout::empty() const {
  return std::ranges::any_of(axes_, [](const Axis& axis) { return SizeOf(axis) == 0; });
}

Result<Layout> Layout::Reshape(std::span<const int64_t> shape) const {
  // The strides that the new axes are still to be made of, next one last.
  std::vector<Stride> left;
  for (const Axis& axis : axes_) {
    for (const Stride& stride : axis) AppendJoined(left, stride);
  }
  const std::optional<std::vector<int64_t>> sizes = Resolved(shape, SizeOf(left));
  if (!sizes) return InvalidArgument(Text(shape) + " has not as many elements as " + Text(Shape()));
  std::ranges::reverse(left);
  Layout reshaped;
  reshaped.offset_ = offset_;
  for (const int64_t size : *sizes) {
    Axis axis;
    for (int64_t wanted = size; wanted > 1;) {
      Stride& next = left.back();
      // The stride fits into the axis as a whole.
      if (wanted % next.size == 0) {
        wanted /= next.size;
        axis.push_back(next);
        left.pop_back();
      } else if (next.size % wanted == 0 && next.step != kRows) {
        // The stride is cut in two: its outer part completes the axis, its inner part is for the
        // next one.
        const int64_t inner = next.size / wanted;
        axis.push_back({wanted, next.step * inner});
        next.size = inner;
        wanted = 1;
      } else {
        return Unimplemented("a tensor " + Text(Shape()) + " seen as " + Text(shape) +
                             " divides a row of a token");
      }
    }
    reshaped.axes_.push_back(Joined(axis));
  }
  return reshaped;
}

Result<Layout> Layout::Permute(std::span<const int64_t> order) const {
  std::vector<int64_t> sorted(order.begin(), order.end());
  std::ranges::sort(sorted);
  Layout permuted;
  permuted.offset_ = offset_;
  bool complete = sorted.size() == axes_.size();
  for (size_t i = 0; complete && i < sorted.size(); ++i)
    complete = sorted[i] == static_cast<int64_t>(i);
  if (!complete)
    return InvalidArgument(Text(order) + " is no order of the axes of " + Text(Shape()));
  for (const int64_t axis : order) permuted.axes_.push_back(axes_[static_cast<size_t>(axis)]);
  return permuted;
}

Result<Layout> Layout::Slice(int axis, int64_t first, int64_t end, int64_t step) const {
  Layout sliced = *this;
  // A step beyond the range picks the first element only; the bound keeps sums with it from
  // overflowing.
  step = std::min(step, std::max<int64_t>(end - first, 1));
  Axis& here = sliced.axes_[static_cast<size_t>(axis)];
  if (first == end) {
    here = {{0, 1}};  // an empty axis
    return sliced;
  }
  std::optional<Axis> part = SliceAxis(here, first, end, step, sliced.offset_);
  if (!part)
    return Unimplemented(
        fmt::format("elements {} to {} of axis {} of {}", first, end, axis, Text(Shape())));
  here = Joined(*part);
  return sliced;
}

Result<Layout> Layout::Expand(std::span<const int64_t> shape) const {
  Layout expanded = *this;
  const auto more = static_cast<std::ptrdiff_t>(shape.size()) - std::ssize(axes_);
  if (more < 0) return InvalidArgument(Text(Shape()) + " cannot be expanded to " + Text(shape));
  expanded.axes_.insert(expanded.axes_.begin(), static_cast<size_t>(more), Axis());
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t now = SizeOf(expanded.axes_[i]);
    if (shape[i] == -1 || shape[i] == now) continue;
    if (now != 1 || shape[i] < 1)
      return InvalidArgument(Text(Shape()) + " cannot be expanded to " + Text(shape));
    if (shape[i] > kMostElements) return InvalidArgument(Text(shape) + " is too large");
    expanded.axes_[i] = {{shape[i], 0}};
    if (Product(expanded.axes_) > kMostElements)
      return InvalidArgument(Text(shape) + " is too large");
  }
  return expanded;
}

Layout Layout::Unsqueeze(int axis) const {
  Layout more = *this;
  more.axes_.insert(more.axes_.begin() + axis, Axis());
  return more;
}

Layout Layout::Squeeze(int axis) const {
  Layout less = *this;
  if (size(axis) == 1) less.axes_.erase(less.axes_.begin() + axis);
  return less;
}

Layout Layout::Repeat(int axis, int64_t n, bool each) const {
  Layout repeated = *this;
  Axis& here = repeated.axes_[static_cast<size_t>(axis)];
  if (n > 1) here.insert(each ? here.end() : here.begin(), Stride{n, 0});
  return repeated;
}

Layout Layout::WithoutLast() const {
  Layout without = *this;
  without.axes_.back().clear();
  return without;
}

Columns Layout::RowColumns(bool once) const {
  Columns columns;
  columns.offset = offset_;
  for (const Axis& axis : axes_) {
    for (const Stride& stride : axis) {
      if (stride.step == kRows || (once && stride.step == 0)) continue;
      AppendJoined(columns.strides, stride);
    }
  }
  return columns;
}

Layout Layout::Compact(bool once) const {
  Layout compact;
  compact.axes_ = axes_;
  int64_t step = 1;
  for (auto axis = compact.axes_.rbegin(); axis != compact.axes_.rend(); ++axis) {
    for (auto stride = axis->rbegin(); stride != axis->rend(); ++stride) {
      if (stride->step == kRows || (once && stride->step == 0)) continue;
      stride->step = step;
      step *= stride->size;
    }
    *axis = Joined(*axis);
  }
  return compact;
}

int Layout::RowAxis() const {
  int found = -1;
  for (int i = 0; i < num_axes(); ++i) {
    for (const Stride& stride : axis(i)) {
      if (stride.step != kRows) continue;
      if (found >= 0 || axis(i).size() != 1) return -1;
      found = i;
    }
  }
  return found;
}

std::string ShapeText(const Layout& layout) { return Text(layout.Shape()); }

}  // namespace lamina
