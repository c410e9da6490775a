// Quantized blocks to fp32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gguf/ggml_type.h"

namespace lamina {

// Writes the elements of `num_blocks` consecutive blocks of `type` to `out`, which has room for
// num_blocks * InfoOf(type).block_elements floats. The values are those that ggml defines, computed
// in fp32 in its order, so they are the same on every machine. `blocks` need not be aligned. For
// F32, F16 and BF16 a block is one element. Thread: any.
void Dequantize(GgmlType type, const std::byte* blocks, int64_t num_blocks, float* out);

}  // namespace lamina
