// Moves rows on a CUDA device: between the values of a slice and messages, between rows of a batch,
// and into the slab of token slots. All pointers are to device memory, aligned to their elements.
// All work is done in the stream's order. With zero rows nothing is launched.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/ids.h"
#include "kernels/cuda/device.h"

namespace lamina::cuda {

// Some rows of a value that has `stride` elements per row, and the first `width` elements of each:
// row i begins at value + (index ? index[i] : i) * stride. To take other columns, pass a pointer to
// the first of them as the value.
struct RowSet {
  int64_t num_rows = 0;
  int64_t width = 0;               // elements
  int64_t stride = 0;              // elements
  const int32_t* index = nullptr;  // [num_rows] row numbers, device; null: the first num_rows rows
};

// Gathers rows: y[i] = row i of x, densely, rounded to `dtype` (to nearest even; kF8 to the bits of
// base/dtype.h). x: [any, stride] fp32; y: [num_rows, width] of `dtype`, no overlap with x.
void PackRows(const float* x, const RowSet& rows, DType dtype, void* y, Stream& stream);

// The same for rows of K or V whose type has scales, by RoundWithScale (kernels/kv_rows.h): y[i] is
// a row as KvRowBytes describes it, and has the bits that PackKvRow makes. x: [any, stride] fp32,
// of which `width` elements are [kv_heads, head_dim]; y: [num_rows] rows, aligned to 4 bytes, no
// overlap with x. REQUIRES: HasScales(dtype), head_dim is a multiple of 4 and divides width.
void PackKvRows(const float* x, const RowSet& rows, int head_dim, DType dtype, void* y,
                Stream& stream);

// Scatters rows: row i of y becomes x[i]. x: [num_rows, width] of `dtype`, not kF8; y: [any,
// stride] fp32. REQUIRES: no row of y occurs twice.
void UnpackRows(const void* x, DType dtype, const RowSet& rows, float* y, Stream& stream);

// Adds factors[i] * x[i] to row i of y: how an expert of a mixture contributes to its rows. x:
// [num_rows, width] fp32; factors: [num_rows] fp32; y: [any, stride] fp32. REQUIRES: no row of y
// occurs twice.
void AddScaledRows(const float* x, const float* factors, const RowSet& rows, float* y,
                   Stream& stream);

// One layer of a slab of token slots, for writing; KvView (kernels/attention_shape.h) is the same
// for reading. (kv_head, slot) begins at kv_head * head_stride + slot * slot_stride, and its scale
// is at kv_head * scale_head_stride + slot * scale_slot_stride.
struct KvPlace {
  void* k = nullptr;        // [num_kv_heads, slots, head_dim] of `dtype`, device or pinned
  void* v = nullptr;        // [num_kv_heads, slots, head_dim] of `dtype`, device or pinned
  int64_t head_stride = 0;  // elements
  int64_t slot_stride = 0;  // elements
  DType dtype = DType::kBF16;
  float* k_scales = nullptr;  // null if the type has none
  float* v_scales = nullptr;
  int64_t scale_head_stride = 0;  // scales
  int64_t scale_slot_stride = 0;  // scales
};

// Stores k[i] and v[i] in slots[i] of `place`, rounded as by PackRows or PackKvRows if the dtypes
// differ. k, v: [num_rows] rows of `dtype`, which is kF32 or the place's; slots: [num_rows]. A row
// is [num_kv_heads, head_dim] elements, with scales behind them if the type has some (KvRowBytes),
// and is then aligned to 4 bytes. REQUIRES: no slot occurs twice.
void WriteKv(const void* k, const void* v, DType dtype, const TokenSlot* slots, int64_t num_rows,
             int num_kv_heads, int head_dim, const KvPlace& place, Stream& stream);

}  // namespace lamina::cuda
