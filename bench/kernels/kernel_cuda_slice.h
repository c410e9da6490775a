// A slice of a model on a GPU, as a compute node runs it, against the sum of its parts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/report.h"

namespace lamina {

// The slice in the middle of the model with made-up weights: what lies between two attentions. The
// reference takes its operators one behind the other, each at the least it can take: linear layers
// in cuBLAS alone on rows in the weights' type, all else as a kernel that only moves what it reads
// and writes. Both wait for the GPU at their end, as a compute node does; the reference is a CUDA
// graph, and so is the slice up to 256 rows (compute_node/cuda/slice_graphs.h). Calls `print` for
// each number of rows. Errors as ModelConfig::Load, CudaWeights::Load and CudaSlices::Create.
Status MeasureCudaSlice(int device, const std::string& model_dir, const std::vector<int64_t>& rows,
                        int repeats, const std::function<void(Measurement)>& print);

}  // namespace lamina
