// Work that is recorded once and then asked for again at one go, at the cost of one launch instead
// of one for each kernel: a CUDA graph.
#pragma once

#include <functional>
#include <memory>

#include "base/status.h"
#include "kernels/cuda/device.h"

namespace lamina::cuda {

// Addresses and sizes are those of the recording; what stands at the addresses is read when the
// stream gets there. Whatever a recording uses must outlive the graph.
class Graph {
 public:
  // Calls `record`; what it asks of the stream is kept instead of done. Only kernels, linear layers
  // and copies on the device may be asked for, and each of them should have run before with the
  // same sizes: what a first run sets up cannot be recorded. Error: the stream's failure so far, or
  // what cannot be recorded, in words; the stream is then as it was before.
  static Result<std::unique_ptr<Graph>> Record(Stream& stream, const std::function<void()>& record);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Asks the stream for all that was recorded, in its order.
  void Replay(Stream& stream) const;

 private:
  explicit Graph(void* handle) : handle_(handle) {}

  void* const handle_;  // a cudaGraphExec_t
};

}  // namespace lamina::cuda
