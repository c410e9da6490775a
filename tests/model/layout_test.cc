// Views of exported programs against tensors that hold the number of each element.
#include "model/exported/layout.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace lamina {
namespace {

// A dense tensor, and PyTorch's views of it as copies.
struct Dense {
  std::vector<int64_t> shape;
  std::vector<int64_t> data;

  int64_t size() const {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  }

  // Calls visit(index of each axis) in order.
  template <typename Visit>
  static void ForEach(const std::vector<int64_t>& shape, Visit visit) {
    std::vector<int64_t> at(shape.size(), 0);
    while (true) {
      visit(at);
      size_t axis = shape.size();
      while (axis > 0 && ++at[axis - 1] == shape[axis - 1]) at[--axis] = 0;
      if (axis == 0) return;
    }
  }
  int64_t At(const std::vector<int64_t>& at) const {
    int64_t index = 0;
    for (size_t i = 0; i < shape.size(); ++i) index = index * shape[i] + at[i];
    return data[static_cast<size_t>(index)];
  }
  Dense Permuted(const std::vector<int64_t>& order) const {
    Dense out;
    for (const int64_t axis : order) out.shape.push_back(shape[static_cast<size_t>(axis)]);
    ForEach(out.shape, [&](const std::vector<int64_t>& at) {
      std::vector<int64_t> from(at.size());
      for (size_t i = 0; i < at.size(); ++i) from[static_cast<size_t>(order[i])] = at[i];
      out.data.push_back(At(from));
    });
    return out;
  }
  Dense Sliced(size_t axis, int64_t first, int64_t end, int64_t step) const {
    Dense out{shape, {}};
    out.shape[axis] = (end - first + step - 1) / step;
    ForEach(out.shape, [&](std::vector<int64_t> at) {
      at[axis] = first + at[axis] * step;
      out.data.push_back(At(at));
    });
    return out;
  }
  Dense Expanded(size_t axis, int64_t n) const {
    Dense out{shape, {}};
    out.shape[axis] = n;
    ForEach(out.shape, [&](std::vector<int64_t> at) {
      at[axis] = 0;
      out.data.push_back(At(at));
    });
    return out;
  }
};

// What a layout says about each element: `rows` * 1000 + its place in the row's value.
std::vector<int64_t> Elements(const Layout& layout) {
  std::vector<Stride> strides;
  for (int i = 0; i < layout.num_axes(); ++i)
    strides.insert(strides.end(), layout.axis(i).begin(), layout.axis(i).end());
  std::vector<int64_t> sizes, elements;
  for (const Stride& stride : strides) sizes.push_back(stride.size);
  Dense::ForEach(sizes, [&](const std::vector<int64_t>& at) {
    int64_t element = layout.RowColumns().offset;
    for (size_t i = 0; i < at.size(); ++i)
      element += at[i] * (strides[i].step == Layout::kRows ? 1000 : strides[i].step);
    elements.push_back(element);
  });
  return elements;
}

TEST(Layout, RandomViewsAreThoseOfADenseTensor) {
  std::mt19937 random(7);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  int taken = 0, refused = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::vector<int64_t> shape = {1, 3, 24};
    Layout layout = Layout::Of(shape, 1);
    Dense dense{shape, {}};
    Dense::ForEach(
        shape, [&](const std::vector<int64_t>& at) { dense.data.push_back(at[1] * 1000 + at[2]); });
    for (int step = 0; step < 6; ++step) {
      const auto axis = static_cast<size_t>(below(std::ssize(dense.shape)));
      Dense next;
      Result<Layout> view = layout;
      switch (below(4)) {
        case 0: {
          std::vector<int64_t> order(dense.shape.size());
          std::iota(order.begin(), order.end(), 0);
          std::shuffle(order.begin(), order.end(), random);
          next = dense.Permuted(order);
          view = layout.Permute(order);
          break;
        }
        case 1: {
          const int64_t first = below(dense.shape[axis]),
                        end = first + 1 + below(dense.shape[axis] - first), by = 1 + below(3);
          next = dense.Sliced(axis, first, end, by);
          view = layout.Slice(static_cast<int>(axis), first, end, by);
          break;
        }
        case 2: {  // an axis in two, or two in one
          std::vector<int64_t> other = dense.shape;
          const int64_t n = other[axis], part = 1 + below(n);
          if (n % part == 0) {
            other[axis] = part;
            other.insert(other.begin() + static_cast<std::ptrdiff_t>(axis) + 1, n / part);
          } else if (axis + 1 < other.size()) {
            other[axis] *= other[axis + 1];
            other.erase(other.begin() + static_cast<std::ptrdiff_t>(axis) + 1);
          }
          next = {other, dense.data};
          view = layout.Reshape(other);
          break;
        }
        default: {
          if (dense.shape[axis] != 1) continue;
          std::vector<int64_t> other(dense.shape.size(), -1);
          other[axis] = 2;
          next = dense.Expanded(axis, 2);
          view = layout.Expand(other);
          break;
        }
      }
      if (!view.ok()) {
        ++refused;
        continue;
      }
      ++taken;
      dense = std::move(next);
      layout = *view;
      ASSERT_EQ(layout.Shape(), dense.shape);
      ASSERT_EQ(Elements(layout), dense.data) << ShapeText(layout);
    }
  }
  EXPECT_GT(taken, 5000);
  EXPECT_LT(refused, taken / 4);
}

TEST(Layout, CompactIsTheSameShapeOverThePickedColumns) {
  const std::vector<int64_t> shape = {1, 5, 4, 6}, order = {0, 2, 1, 3};
  const Layout heads = *Layout::Of(shape, 1).Permute(order);
  const Layout half = *heads.Slice(3, 3, 6, 1);
  EXPECT_EQ(half.RowColumns(), (Columns{3, {{4, 6}, {3, 1}}}));
  EXPECT_EQ(half.Compact().Shape(), half.Shape());
  EXPECT_EQ(half.Compact().RowColumns(), Columns::All(12));
  EXPECT_EQ(half.RowAxis(), 2);
}

TEST(Layout, WhatCannotBeIsRefused) {
  const std::vector<int64_t> shape = {1, 4, 6}, too_many = {5, 5}, two_unknown = {-1, -1},
                             across = {1, 2, 12}, huge = {int64_t{1} << 50, 4, 6};
  const Layout layout = Layout::Of(shape, 1);
  EXPECT_EQ(layout.Reshape(too_many).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(layout.Reshape(two_unknown).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(layout.Reshape(across).status().code(), StatusCode::kUnimplemented)
      << "an axis of two rows and their elements";
  EXPECT_EQ(layout.Slice(1, 0, 2, 1).status().code(), StatusCode::kUnimplemented) << "some rows";
  EXPECT_EQ(layout.Expand(huge).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lamina
