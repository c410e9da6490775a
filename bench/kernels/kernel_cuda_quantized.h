// The quantized linear layers of `lamina bench kernels --device cuda:N`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/report.h"
#include "kernels/cuda/host/staged_stream.h"

namespace lamina {

// One shape of matrix in one format, with so many copies that no cache of the device holds them.
struct CudaQuantizedCase {
  std::string format;  // one of QuantizedFormatNames
  int64_t rows = 1, out_features = 0, in_features = 0;
  int64_t copies_bytes = 0;
};

// GFLOP/s against reading the weights at the rate of a copy on the device; then against the same
// layer with bf16 weights by cuBLAS. kInternal if a result is wrong, kOutOfSpace if the device has
// no memory for the copies.
Result<std::vector<Measurement>> MeasureCudaQuantized(const CudaQuantizedCase& sizes, int repeats,
                                                      cuda::StagedStream& staged);

}  // namespace lamina
