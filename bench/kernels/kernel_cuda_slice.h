// Measures a slice of a model on a GPU, as a compute node runs it, against the sum of its parts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/report.h"

namespace lamina {

// Measures the slice in the middle of the model, what lies between two attentions, with made-up
// weights, and calls `print` for each number of rows. The reference runs the slice's operators one
// after the other, each at the least it can take: linear layers in cuBLAS alone on rows in the
// weights' type, everything else as a kernel that only moves what the operator reads and writes.
// Both wait for the GPU at their end, as a compute node does; the reference is a CUDA graph, and so
// is the slice up to 256 rows (compute_node/cuda/slice_graphs.h). Returns errors of the model's
// files and of the device; kUnimplemented for slices with experts.
Status MeasureCudaSlice(int device, const std::string& model_dir, const std::vector<int64_t>& rows,
                        int repeats, const std::function<void(Measurement)>& print);

}  // namespace lamina
