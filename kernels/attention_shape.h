// What attention is over: heads, and where K and V of a token slot live. The same for every device.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace lamina {

struct AttentionShape {
  int num_heads = 0;     // query heads
  int num_kv_heads = 0;  // divides num_heads
  int head_dim = 0;      // multiple of 8, at most 256
  float scale = 0;       // usually 1/sqrt(head_dim)
  float soft_cap = 0;    // scaled scores s become soft_cap * tanh(s / soft_cap); 0: they stay

  constexpr int group() const { return num_heads / num_kv_heads; }
};

// One layer of a slab of token slots, as a kernel sees it. Strides in elements.
// k(kv_head, slot) = k + kv_head * head_stride + slot * slot_stride, [head_dim] of `dtype`; v
// likewise.
struct KvView {
  const void* k = nullptr;
  const void* v = nullptr;
  int64_t head_stride = 0;
  int64_t slot_stride = 0;
  DType dtype = DType::kBF16;  // kF32 | kBF16 | kF16 | kF8
};

}  // namespace lamina
