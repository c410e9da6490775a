// A CUDA graph: work that is recorded once and then replayed, at the cost of one launch instead of
// one for each kernel.
#pragma once

#include <functional>
#include <memory>

#include "base/status.h"
#include "kernels/cuda/device.h"

namespace lamina::cuda {

// Recorded work. Its addresses and sizes are those of the recording; the contents of the addresses
// are read when the work is done. All memory that a recording uses must outlive the graph. Thread:
// the stream's owner.
class Graph {
 public:
  // Calls `record` and keeps the work that it gives to the stream, which is not done. That may be
  // kernels, linear layers and copies on the device, and each should have run before with the same
  // sizes, because what a first run sets up cannot be recorded. On an error the stream is as it was
  // before: kInternal if something cannot be recorded, or the failure that the stream already had.
  static Result<std::unique_ptr<Graph>> Record(Stream& stream, const std::function<void()>& record);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Gives the stream all work that was recorded, in its order.
  void Replay(Stream& stream) const;

 private:
  explicit Graph(void* handle) : handle_(handle) {}

  void* const handle_;  // a cudaGraphExec_t
};

}  // namespace lamina::cuda
