#include "kernels/kv_rows.h"

#include <cstring>

#include "kernels/cpu/kernel_table.h"

namespace lamina {

float RoundWithScale(const float* x, int64_t n, DType dtype, void* codes) {
  return ActiveKernels().round_with_scale(x, n, dtype, codes);
}

std::byte* PackKvRow(const float* x, int64_t num_kv_heads, int64_t head_dim, DType dtype,
                     std::byte* row) {
  const KernelTable& kernels = ActiveKernels();
  std::byte* const end = row + KvRowBytes(dtype, num_kv_heads, head_dim);
  if (!HasScales(dtype)) {
    kernels.convert_from_float(x, num_kv_heads * head_dim, dtype, row);
    return end;
  }
  std::byte* const scales = row + num_kv_heads * head_dim;
  for (int64_t h = 0; h < num_kv_heads; ++h) {
    const float scale =
        kernels.round_with_scale(x + h * head_dim, head_dim, dtype, row + h * head_dim);
    std::memcpy(scales + h * static_cast<int64_t>(sizeof(scale)), &scale, sizeof(scale));
  }
  return end;
}

}  // namespace lamina
