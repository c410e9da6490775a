// Brings quantized matrices into a GPU's memory.
#pragma once

#include <cstddef>

#include "kernels/cuda/host/staged_stream.h"
#include "kernels/cuda/linear.h"
#include "kernels/weight_format.h"

namespace lamina::cuda {

// Copies the matrix to the device and orders it there as kernels/cuda/quantized_weights.h says, all
// in the stream's order. The matrix may go when this returns. place: device memory of
// QuantizedLayout's size, aligned to 256 bytes; scratch grows as needed, to a MiB or to 32 outputs.
LinearWeights UploadQuantized(const QuantizedMatrix& matrix, std::byte* place,
                              DeviceBuffer& scratch, StagedStream& stream);

}  // namespace lamina::cuda
