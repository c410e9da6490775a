// Moving rows on a CUDA device: between values of a slice and messages, between rows of a batch,
// and into the slab of token slots. Pointers are device memory, aligned to their elements. Zero
// rows are fine: nothing is launched.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/ids.h"
#include "kernels/cuda/device.h"

namespace lamina::cuda {

// `width` elements of some rows of a value that has `stride` elements per row: row i is value +
// (index ? index[i] : i) * stride. Columns of it are a pointer further on.
struct RowSet {
  int64_t num_rows = 0;
  int64_t width = 0;
  int64_t stride = 0;
  const int32_t* index = nullptr;  // [num_rows] of rows, device memory; null: the first num_rows
};

// y[i] = row i of x, densely, as `dtype` (round to nearest even; kF8 to the bits of base/dtype.h).
// x: fp32; y: [num_rows, width]. Also how KeepRows gathers: dtype kF32. No overlap.
void PackRows(const float* x, const RowSet& rows, DType dtype, void* y, Stream& stream);

// Row i of y = x[i], or += x[i]. x: [num_rows, width] of `dtype`, not kF8; y: fp32. REQUIRES: no
// row twice.
void UnpackRows(const void* x, DType dtype, const RowSet& rows, float* y, Stream& stream);
void AddUnpackedRows(const void* x, DType dtype, const RowSet& rows, float* y, Stream& stream);

// Row i of y += factors[i] * x[i]: how a mixture's expert gives its part. x: [num_rows, width]
// fp32; factors: [num_rows]. REQUIRES: no row twice.
void AddScaledRows(const float* x, const float* factors, const RowSet& rows, float* y,
                   Stream& stream);

// One layer of a slab of token slots, to be written; as KvView, which is for reading.
struct KvPlace {
  void* k = nullptr;
  void* v = nullptr;
  int64_t head_stride = 0;  // in elements
  int64_t slot_stride = 0;
  DType dtype = DType::kBF16;
};

// Stores k[i] and v[i] in slots[i] of `place`, converted if the dtypes differ (as by PackRows). k,
// v: [num_rows, num_kv_heads, head_dim] of `dtype`, which is kF32 or the place's. slots:
// [num_rows], none twice.
void WriteKv(const void* k, const void* v, DType dtype, const TokenSlot* slots, int64_t num_rows,
             int num_kv_heads, int head_dim, const KvPlace& place, Stream& stream);

}  // namespace lamina::cuda
