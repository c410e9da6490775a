// Quantized matrices in a checkpoint of Hugging Face's layout (model/quantization_config.h), as the
// kernels take them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute_node/safetensors.h"
#include "kernels/weight_format.h"
#include "model/graph.h"
#include "model/quantization_config.h"

namespace lamina {

// Where a matrix, or a part of one, lies. Borrows the checkpoint.
struct QuantizedSource {
  QuantizationConfig config;
  int64_t out = 0, in = 0;  // of the whole matrix
  WeightRef::Stack stack;
  std::vector<int64_t> rows;  // outputs of the part
  int64_t first_input = 0, num_inputs = 0;
  RawTensor codes, scales;
  std::optional<RawTensor> zeros;
  std::vector<int32_t> group_of;      // [in] of the whole matrix; empty if inputs follow each other
  WeightFormat format = DType::kF32;  // of the part
};

// Finds a weight's tensors and checks them. Nothing if the checkpoint holds plain numbers under the
// weight's name. kNotFound if it holds neither; kInvalidArgument with tensor, file and both shapes
// if a shape is wrong, or a group of an input is beyond the scales; kUnimplemented for an element
// type that is not known, or a matrix that the model holds transposed.
Result<std::optional<QuantizedSource>> FindQuantized(const Checkpoint& checkpoint,
                                                     const QuantizationConfig& config,
                                                     const WeightRef& weight);

// Reads it. kInvalidArgument if a scale is not finite, or too large for what its codes can be.
Result<QuantizedMatrix> ReadQuantized(const QuantizedSource& source);

}  // namespace lamina
