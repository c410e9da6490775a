// What the parts of a CUDA compute device share: one GPU, one stream in which all of them work, and
// linear layers on it.
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

  // Whether slices return before the GPU has run them: while there are links, on which replies are
  // waited for by the GPU.
  void RunAhead(int more_links) { num_links_ += more_links; }
  bool runs_ahead() const { return num_links_ > 0; }

  // Makes linear() large enough for these limits and all that were asked for before. Errors as
  // cuda::Linear::Create.
  Status Reserve(const cuda::LinearLimits& limits);
  cuda::Linear& linear() { return *linear_; }  // REQUIRES: Reserve. Valid until the next one
  // Another one: linear() works in other memory, so graphs with it are of no more use.
  int version() const { return version_; }

 private:
  const std::unique_ptr<cuda::StagedStream> staged_;
  cuda::LinearLimits limits_;
  std::unique_ptr<cuda::Linear> linear_;
  int version_ = 0;
  int num_links_ = 0;
};

}  // namespace lamina
