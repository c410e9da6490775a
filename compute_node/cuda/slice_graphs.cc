#include "compute_node/cuda/slice_graphs.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"
#include "base/units.h"

namespace lamina {
namespace {

// The numbers of rows for which graphs are recorded. They are so close that filling up a step costs
// little: a linear layer reads its weights once for all rows.
constexpr std::array<int64_t, 15> kGraphRows = {1,  2,  4,   8,   16,  24,  32, 48,
                                                64, 96, 128, 160, 192, 224, 256};

Result<std::unique_ptr<cuda::Graph>> RecordIfThereIsMemory(cuda::Stream& stream,
                                                           const std::function<void()>& launch) {
  LAMINA_ASSIGN_OR_RETURN(const int64_t free_bytes, cuda::FreeDeviceBytes());
  if (free_bytes < kGraphReserveBytes)
    return OutOfSpace("the device has only " + FormatGigabytes(free_bytes) + " of memory free");
  return cuda::Graph::Record(stream, launch);
}

}  // namespace

std::optional<int64_t> SliceGraphs::FilledRows(int64_t rows, int64_t max_rows) {
  const auto* const next = std::ranges::lower_bound(kGraphRows, rows);
  if (next == kGraphRows.end()) return std::nullopt;
  return std::min(*next, max_rows);
}

void SliceGraphs::Run(const OpRange& range, int64_t rows, cuda::Stream& stream,
                      const std::function<void()>& launch) {
  Entry& entry = entries_[{range, rows}];
  if (entry.times == 1) {
    Result<std::unique_ptr<cuda::Graph>> graph = RecordIfThereIsMemory(stream, launch);
    if (graph.ok()) {
      entry.graph = std::move(*graph);
    } else if (!std::exchange(has_warned_, true)) {
      LAMINA_LOG_WARN(
          "slice {}, {} rows: kernels are launched one by one, as they could not be recorded as a "
          "CUDA graph: {}",
          range.slice, rows, graph.status().message());
    }
  }
  entry.times = std::min(entry.times + 1, 2);
  if (entry.graph == nullptr) return launch();
  entry.graph->Replay(stream);
}

}  // namespace lamina
