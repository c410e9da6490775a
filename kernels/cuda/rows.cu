#include "kernels/cuda/rows.h"

#include <math.h>

#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/vectors.cuh"

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

// The most that a code stands for.
__device__ float LargestCode(DType dtype) { return dtype == DType::kI8Scaled ? 127.0f : kMaxF8; }

// What RoundWithScale (kernels/kv_rows.h) does, by all lanes of a warp together, with the same
// bits: nvcc's divisions are rounded as IEEE 754 has it unless it is told otherwise. x: [n] fp32;
// codes: [n] of `dtype`. Returns the scale in every lane.
__device__ float RoundByWarp(const float* x, int n, DType dtype, uint8_t* codes) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float largest = 0;
  for (int i = lane; i < n; i += kWarpSize) {
    const float size = fabsf(x[i]);
    // fmaxf would pass over a NaN; infinity stands for it.
    largest = size < INFINITY ? fmaxf(largest, size) : INFINITY;
  }
  largest = WarpMax(largest);
  const float most = LargestCode(dtype);
  const bool is_finite = largest < INFINITY;
  const float scale = is_finite ? largest / most : AsFloat(0x7fc00000u);
  for (int i = lane; i < n; i += kWarpSize) {
    uint8_t code = 0;
    if (is_finite && scale > 0) {
      const float quotient = fmaxf(-most, fminf(most, x[i] / scale));
      code = dtype == DType::kF8Scaled ? ToF8(quotient).bits
                                       : static_cast<uint8_t>(static_cast<int8_t>(rintf(quotient)));
    }
    codes[i] = code;
  }
  return scale;
}

// One warp for each kv_head.
__global__ void PackWithScales(const float* x, RowSet rows, int head_dim, DType dtype, uint8_t* y) {
  const int num_heads = static_cast<int>(rows.width) / head_dim;
  uint8_t* const codes = y + blockIdx.x * KvRowBytes(dtype, num_heads, head_dim);
  float* const scales = reinterpret_cast<float*>(codes + rows.width);
  const float* const row = x + Start(rows);
  for (int head = static_cast<int>(threadIdx.x) / kWarpSize; head < num_heads;
       head += kThreads / kWarpSize) {
    const float scale =
        RoundByWarp(row + head * head_dim, head_dim, dtype, codes + head * head_dim);
    if (threadIdx.x % kWarpSize == 0) scales[head] = scale;
  }
}

// Where K or V of the block's slot is, and its scale.
struct SlotPlace {
  uint8_t* codes;
  float* scale;
};
__device__ SlotPlace PlaceOf(const KvPlace& place, bool is_v, int head, int64_t slot) {
  return {static_cast<uint8_t*>(is_v ? place.v : place.k) + head * place.head_stride +
              slot * place.slot_stride,
          (is_v ? place.v_scales : place.k_scales) + head * place.scale_head_stride +
              slot * place.scale_slot_stride};
}

// WriteKv for types with scales, from fp32: one warp for each kv_head of K and of V.
__global__ void RoundIntoSlots(const float* k, const float* v, const TokenSlot* slots,
                               int num_kv_heads, int head_dim, KvPlace place) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * num_kv_heads * head_dim;
  for (int i = static_cast<int>(threadIdx.x) / kWarpSize; i < 2 * num_kv_heads;
       i += kThreads / kWarpSize) {
    const bool is_v = i >= num_kv_heads;
    const int head = is_v ? i - num_kv_heads : i;
    const SlotPlace to = PlaceOf(place, is_v, head, slots[blockIdx.x]);
    const float scale =
        RoundByWarp((is_v ? v : k) + row + head * head_dim, head_dim, place.dtype, to.codes);
    if (threadIdx.x % kWarpSize == 0) *to.scale = scale;
  }
}

// WriteKv for types with scales, from rows of codes and scales.
__global__ void CopyIntoSlots(const uint8_t* k, const uint8_t* v, const TokenSlot* slots,
                              int num_kv_heads, int head_dim, KvPlace place) {
  const int width = num_kv_heads * head_dim;
  const int64_t row = blockIdx.x * KvRowBytes(place.dtype, num_kv_heads, head_dim);
  for (int part = 0; part < 2; ++part) {
    const bool is_v = part == 1;
    const uint8_t* const codes = (is_v ? v : k) + row;
    const float* const scales = reinterpret_cast<const float*>(codes + width);
    for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) {
      const int head = i / head_dim;
      const SlotPlace to = PlaceOf(place, is_v, head, slots[blockIdx.x]);
      to.codes[i % head_dim] = codes[i];
      if (i % head_dim == 0) *to.scale = scales[head];
    }
  }
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

void PackKvRows(const float* x, const RowSet& rows, int head_dim, DType dtype, void* y,
                Stream& stream) {
  if (rows.num_rows > 0) {
    Launch(PackWithScales, OverRows(rows.num_rows), stream, x, rows, head_dim, dtype,
           static_cast<uint8_t*>(y));
  }
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
  if (num_rows <= 0) return;
  if (!HasScales(place.dtype)) {
    Launch(WriteSlots, OverRows(num_rows), stream, k, v, dtype, slots, num_kv_heads, head_dim,
           place);
  } else if (dtype == DType::kF32) {
    Launch(RoundIntoSlots, OverRows(num_rows), stream, static_cast<const float*>(k),
           static_cast<const float*>(v), slots, num_kv_heads, head_dim, place);
  } else {
    Launch(CopyIntoSlots, OverRows(num_rows), stream, static_cast<const uint8_t*>(k),
           static_cast<const uint8_t*>(v), slots, num_kv_heads, head_dim, place);
  }
}

}  // namespace lamina::cuda
