// Records the operators of slices as CUDA graphs, because at small batches the launches of some 30
// kernels per layer take longer than the kernels themselves.
//
// A graph is for one number of rows. Steps are filled up to one of a few such numbers; the rows
// behind the step's own are computed from whatever is in memory there, and nobody reads them.
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

// Device memory that graphs must leave free for what a step may need later: scratch memory of
// attention, messages.
inline constexpr int64_t kGraphReserveBytes = int64_t{1} << 30;

// Thread: one owner.
class SliceGraphs {
 public:
  // The number of rows that graphs for a step of `rows` rows have, at most `max_rows`. nullopt if
  // the step is so large that launches do not matter.
  static std::optional<int64_t> FilledRows(int64_t rows, int64_t max_rows);

  // Queues in the stream what `launch` queues there, which must be the same each time for the same
  // range and rows. The first time `launch` is called, the second time it is recorded, and from
  // then on the graph is launched instead. If it cannot be recorded, or if less than
  // kGraphReserveBytes of device memory are free, of which graphs take some, `launch` is called
  // every time, and the log says why once.
  void Run(const OpRange& range, int64_t rows, cuda::Stream& stream,
           const std::function<void()>& launch);

  // Forgets all graphs, or those of a slice.
  void Clear() { entries_.clear(); }
  void ClearSlice(int slice) {
    std::erase_if(entries_, [&](const auto& entry) { return entry.first.first.slice == slice; });
  }

 private:
  struct Entry {
    int times = 0;                       // calls of Run for it, counted to 2
    std::unique_ptr<cuda::Graph> graph;  // null if it is not recorded yet, or cannot be
  };

  std::map<std::pair<OpRange, int64_t>, Entry> entries_;
  bool has_warned_ = false;
};

}  // namespace lamina
