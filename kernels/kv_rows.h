// K and V as the KV cache stores them and as they travel: rounding to each type of base/dtype.h,
// also those with scales.
//
// Thread: any. All work is done on the calling thread. Every instruction set gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace lamina {

// Rounds the elements that share a scale, K or V of one token and one kv_head, and returns the
// scale: max|x| / 127 for kI8Scaled, max|x| / 448 for kF8Scaled. Each code is x / scale rounded to
// the nearest code, ties to even, at most 127 or 448 in magnitude. With a scale of 0, of zeros or
// of numbers so small that it underflows, all codes are 0. A vector that holds an infinity or a NaN
// gets codes of 0 and the quiet NaN 0x7fc00000 as its scale: it does not become numbers, and no
// other vector has a part in it. x: [n] fp32; codes: [n] of `dtype`, no overlap with x. REQUIRES:
// HasScales(dtype).
float RoundWithScale(const float* x, int64_t n, DType dtype, void* codes);

// Rounds K or V of one token for some kv_heads, of any type, to a row as KvRowBytes describes it,
// and returns the end of it. x: [num_kv_heads, head_dim] fp32; row: need not be aligned.
std::byte* PackKvRow(const float* x, int64_t num_kv_heads, int64_t head_dim, DType dtype,
                     std::byte* row);

}  // namespace lamina
