// Quantized blocks to fp32, or to the integers and scales that they are made of.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gguf/ggml_type.h"

namespace lamina {

// An element of a quantized type is an integer times a scale, plus a minimum in some types.
struct GgmlCodes {
  int lowest = 0;  // integers are lowest to lowest + 2^bits - 1
  int bits = 8;
  int group = 32;  // consecutive elements with the same scale and minimum
  bool has_minima = false;
  bool fp16 = true;  // fp16 holds every scale and minimum; else they need fp32
  // The integers are twice what 4 bits of E2M1 stand for, and bf16 holds twice every scale.
  bool e2m1 = false;
};

// Null for F32, F16 and BF16. Thread: any.
const GgmlCodes* CodesOf(GgmlType type);

// Writes the integers, scales and minima of `num_blocks` consecutive blocks: block_elements of
// InfoOf(type) integers for each block, and a scale for each group of them; minima only for types
// that have them, else the pointer may be null. integer * scale + minimum, rounded once, is the
// element, in the same bits as Dequantize. Products of integers and scales are exact in fp32.
// REQUIRES: CodesOf(type) is not null. Thread: any.
void Unpack(GgmlType type, const std::byte* blocks, int64_t num_blocks, int8_t* integers,
            float* scales, float* minima);

// Writes the elements of `num_blocks` consecutive blocks of `type` to `out`, which has room for
// num_blocks * InfoOf(type).block_elements floats. The values are those that ggml defines, computed
// in fp32 in its order, so they are the same on every machine. `blocks` need not be aligned. For
// F32, F16 and BF16 a block is one element. Thread: any.
void Dequantize(GgmlType type, const std::byte* blocks, int64_t num_blocks, float* out);

}  // namespace lamina
