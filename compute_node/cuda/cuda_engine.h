// What the parts of a CUDA compute device share: one GPU, one stream in which all of them queue
// their work, and the linear layers on it.
#pragma once

#include <memory>

#include "base/status.h"
#include "kernels/cuda/host/staged_stream.h"
#include "kernels/cuda/linear.h"

namespace lamina {

// Thread: one owner.
class CudaEngine {
 public:
  explicit CudaEngine(std::unique_ptr<cuda::StagedStream> staged) : staged_(std::move(staged)) {}

  cuda::StagedStream& staged() { return *staged_; }
  cuda::Stream& stream() { return staged_->stream(); }

  // Whether slices return before the GPU has run them. That is so while there are links on which
  // the GPU itself waits for replies; a link counts itself in with 1 and out with -1.
  void RunAhead(int more_links) { num_links_ += more_links; }
  bool runs_ahead() const { return num_links_ > 0; }

  // Makes linear() large enough for these limits and all earlier ones. Returns the error of
  // cuda::Linear::Create, or of the stream, which is waited for.
  Status Reserve(const cuda::LinearLimits& limits);
  // Valid until the next Reserve. REQUIRES: Reserve was called.
  cuda::Linear& linear() { return *linear_; }
  // Changes when linear() is replaced. Then it uses other memory, so recorded graphs are no longer
  // valid.
  int version() const { return version_; }

 private:
  const std::unique_ptr<cuda::StagedStream> staged_;
  cuda::LinearLimits limits_;
  std::unique_ptr<cuda::Linear> linear_;
  int version_ = 0;
  int num_links_ = 0;
};

}  // namespace lamina
