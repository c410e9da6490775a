#include "compute_node/cuda/cuda_engine.h"

#include <algorithm>

namespace lamina {

Status CudaEngine::Reserve(const cuda::LinearLimits& limits) {
  const cuda::LinearLimits needed = {std::max(limits.max_rows, limits_.max_rows),
                                     std::max(limits.max_in_features, limits_.max_in_features),
                                     std::max(limits.max_out_features, limits_.max_out_features)};
  if (linear_ != nullptr && needed.max_rows == limits_.max_rows &&
      needed.max_in_features == limits_.max_in_features &&
      needed.max_out_features == limits_.max_out_features)
    return OkStatus();
  LAMINA_RETURN_IF_ERROR(staged_->Synchronize());
  linear_.reset();  // before the next one needs its memory
  // With kSplit x is multiplied in two parts, so that tokens are the same as on a CPU, except where
  // logits differ in the last bits only.
  LAMINA_ASSIGN_OR_RETURN(linear_,
                          cuda::Linear::Create(needed, cuda::LinearPrecision::kSplit, stream()));
  limits_ = needed;
  ++version_;
  return OkStatus();
}

}  // namespace lamina
