// How a checkpoint of Hugging Face's layout holds quantized weights: "quantization_config" of
// config.json. Which of a model's linear layers are quantized is seen by their tensors; what the
// lists "ignore" and "modules_to_not_convert" name has plain ones.
#pragma once

#include <cstdint>

#include "base/json_keys.h"

namespace lamina {

struct QuantizationConfig {
  // What stands in the place of X.weight, [out, in].
  enum class Layout {
    // compressed-tensors, "pack-quantized": X.weight_packed, codes of 4 or 8 bits along the inputs;
    // X.weight_scale, perhaps X.weight_zero_point and X.weight_g_idx.
    kPacked,
    // compressed-tensors, "int-quantized" and "float-quantized", and "fp8" without blocks: X.weight
    // in I8 or F8_E4M3, and X.weight_scale.
    kScaled,
    // "fp8" of blocks: X.weight in F8_E4M3 and X.weight_scale_inv, which is the scale all the same.
    kScaleInverse,
    kAwq,   // AutoAWQ's "gemm": X.qweight, X.qzeros, X.scales
    kGptq,  // the same names in another order, and X.g_idx
    // OpenAI's, of all experts of a layer in one tensor: X_blocks, codes in E2M1 along the inputs,
    // [experts, out, in / 32, 16], the first of two in the lower bits; X_scales in E8M0.
    kMxfp4,
  };
  Layout layout = Layout::kPacked;
  int bits = 4;
  bool symmetric = true;
  // A scale is for so many outputs and inputs. 0: for all of them.
  int64_t scale_outputs = 1;
  int64_t scale_inputs = 0;
  // GPTQ's first checkpoints hold zero points less 1.
  bool zeros_minus_one = false;

  // Bits of a code, and its part of a scale of 16 bits and of a zero point, if it has one.
  double BitsPerElement() const;

  // Reads the object. A format that is not known is kUnimplemented in `keys`, with its name.
  static QuantizationConfig Parse(JsonKeys& keys);
};

}  // namespace lamina
