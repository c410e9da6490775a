// Which tokens of its sequence a row attends to in a layer.
#pragma once

#include <compare>
#include <cstdint>

namespace lamina {

// All tokens up to the row's own; or the last `size` of these, a sliding window (Beltagy et al.,
// Longformer, 2020, section 3.1); or, where sequences are cut into chunks of `size` tokens, those
// of the row's own chunk, as in Llama 4.
struct AttentionWindow {
  int64_t size = 0;  // tokens; 0: all
  bool chunked = false;

  friend auto operator<=>(const AttentionWindow&, const AttentionWindow&) = default;

  bool any() const { return size > 0; }

  // The row at `position` attends to the tokens from this position on, up to itself. REQUIRES, as
  // for the following: position >= 0.
  int64_t First(int64_t position) const {
    if (position < size) return 0;
    return !any() ? 0 : chunked ? position - position % size : position - size + 1;
  }
  int64_t NumAttended(int64_t position) const { return position - First(position) + 1; }

  // The mean number where rows of sequences have `context` tokens up to themselves on average. In
  // sequences of many chunks a row is as likely at any place of its chunk.
  double MeanAttended(double context) const {
    const auto most = static_cast<double>(size);
    if (!any() || context <= most) return context;
    return chunked ? (most + 1) / 2 : most;
  }
};

}  // namespace lamina
