// The operators of slices as CUDA graphs: at small batches the launches of some 30 kernels a layer
// take longer than the kernels.
//
// A graph has one number of rows. Steps are filled up to one of a few such numbers; the rows behind
// the step's own are computed from whatever stands there, and nobody reads them.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "kernels/cuda/graph.h"

namespace lamina {

// Operators [begin, end) of a slice's program.
struct OpRange {
  int slice = 0;
  size_t begin = 0;
  size_t end = 0;
  auto operator<=>(const OpRange&) const = default;
};

// What a step may need later: scratch memory of attention, messages.
inline constexpr int64_t kGraphReserveBytes = int64_t{1} << 30;

// Thread: one owner.
class SliceGraphs {
 public:
  // The number of rows that graphs for `rows` rows have, at most `max_rows`; none where a step is
  // so large that its launches do not matter.
  static std::optional<int64_t> FilledRows(int64_t rows, int64_t max_rows);

  // Asks the stream for what `launch` asks it for, which must be the same for the same range and
  // rows each time. The first time it is called, the second time it is recorded, and from then on
  // the graph does it. What cannot be recorded is called every time, and the log says why: also
  // when less than kGraphReserveBytes of the device's memory is free, as graphs take some of it.
  void Run(const OpRange& range, int64_t rows, cuda::Stream& stream,
           const std::function<void()>& launch);

  // Forgets all graphs.
  void Clear() {
    entries_.clear();
    num_graphs_ = 0;
  }

  int64_t num_graphs() const { return num_graphs_; }

 private:
  struct Entry {
    int times = 0;                       // that it was asked for; counts to 2
    std::unique_ptr<cuda::Graph> graph;  // null: not recorded yet, or cannot be
  };

  std::map<std::pair<OpRange, int64_t>, Entry> entries_;
  int64_t num_graphs_ = 0;
  bool has_warned_ = false;
};

}  // namespace lamina
