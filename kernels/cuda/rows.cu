#include "kernels/cuda/rows.h"

#include "kernels/cuda/platform.cuh"

namespace lamina::cuda {
namespace {

constexpr int kThreads = 128;

// One block for each row.
LaunchShape OverRows(int64_t rows) {
  return {dim3(static_cast<unsigned>(rows)), dim3(kThreads), 0};
}

// Where the block's row begins, in elements.
__device__ int64_t Start(const RowSet& rows) {
  return (rows.index == nullptr ? static_cast<int64_t>(blockIdx.x) : rows.index[blockIdx.x]) *
         rows.stride;
}

// The kernels take the arguments of the functions in rows.h, with the same shapes.
__global__ void Pack(const float* x, RowSet rows, DType dtype, void* y) {
  const int64_t from = Start(rows), to = blockIdx.x * rows.width;
  for (int64_t i = threadIdx.x; i < rows.width; i += kThreads)
    StoreKvAs(x[from + i], y, dtype, to + i);
}

__global__ void Unpack(const void* x, DType dtype, RowSet rows, float* y) {
  const int64_t from = blockIdx.x * rows.width, to = Start(rows);
  for (int64_t i = threadIdx.x; i < rows.width; i += kThreads)
    y[to + i] = LoadAs(x, dtype, from + i);
}

__global__ void AddScaled(const float* x, const float* factors, RowSet rows, float* y) {
  const int64_t from = blockIdx.x * rows.width, to = Start(rows);
  const float factor = factors[blockIdx.x];
  for (int64_t i = threadIdx.x; i < rows.width; i += kThreads)
    y[to + i] = fmaf(factor, x[from + i], y[to + i]);
}

__global__ void WriteSlots(const void* k, const void* v, DType dtype, const TokenSlot* slots,
                           int num_kv_heads, int head_dim, KvPlace place) {
  const int width = num_kv_heads * head_dim;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * width,
                slot = static_cast<int64_t>(slots[blockIdx.x]) * place.slot_stride;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) {
    const int64_t to = i / head_dim * place.head_stride + slot + i % head_dim;
    StoreKvAs(LoadKvAs(k, dtype, row + i), place.k, place.dtype, to);
    StoreKvAs(LoadKvAs(v, dtype, row + i), place.v, place.dtype, to);
  }
}

}  // namespace

void PackRows(const float* x, const RowSet& rows, DType dtype, void* y, Stream& stream) {
  if (rows.num_rows > 0) Launch(Pack, OverRows(rows.num_rows), stream, x, rows, dtype, y);
}

void UnpackRows(const void* x, DType dtype, const RowSet& rows, float* y, Stream& stream) {
  if (rows.num_rows > 0) Launch(Unpack, OverRows(rows.num_rows), stream, x, dtype, rows, y);
}

void AddScaledRows(const float* x, const float* factors, const RowSet& rows, float* y,
                   Stream& stream) {
  if (rows.num_rows > 0) Launch(AddScaled, OverRows(rows.num_rows), stream, x, factors, rows, y);
}

void WriteKv(const void* k, const void* v, DType dtype, const TokenSlot* slots, int64_t num_rows,
             int num_kv_heads, int head_dim, const KvPlace& place, Stream& stream) {
  if (num_rows > 0)
    Launch(WriteSlots, OverRows(num_rows), stream, k, v, dtype, slots, num_kv_heads, head_dim,
           place);
}

}  // namespace lamina::cuda
