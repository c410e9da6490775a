// The two structs that describe attention to a kernel, on the CPU as on a GPU: how many heads of
// which size there are, and where K and V of a token slot lie in memory.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace lamina {

// The heads of one attention layer, and how its scores are formed.
struct AttentionShape {
  int num_heads = 0;     // query heads
  int num_kv_heads = 0;  // divides num_heads
  int head_dim = 0;      // multiple of 8, at most 256
  float scale = 0;       // usually 1/sqrt(head_dim)
  // Every scaled score s becomes soft_cap * tanh(s / soft_cap) before the softmax, as in Gemma 2.
  // 0: scores stay as they are.
  float soft_cap = 0;

  // Query heads that share one kv_head (grouped-query attention).
  constexpr int group() const { return num_heads / num_kv_heads; }
};

// One layer of a slab of token slots, as a kernel sees it; owns nothing. K of (kv_head, slot) is
// the vector of head_dim elements at k + kv_head * head_stride + slot * slot_stride, counted in
// elements; V lies at the same offset from v. If the type has scales (HasScales in base/dtype.h),
// that of K of (kv_head, slot) is k_scales[kv_head * scale_head_stride + slot * scale_slot_stride],
// and that of V lies at the same offset from v_scales. The pointers are to memory of the device
// that the kernel runs on.
struct KvView {
  const void* k = nullptr;  // [num_kv_heads, slots, head_dim] of `dtype`
  const void* v = nullptr;  // [num_kv_heads, slots, head_dim] of `dtype`
  int64_t head_stride = 0;  // elements
  int64_t slot_stride = 0;  // elements
  DType dtype = DType::kBF16;
  const float* k_scales = nullptr;  // null if the type has none
  const float* v_scales = nullptr;
  int64_t scale_head_stride = 0;  // scales
  int64_t scale_slot_stride = 0;  // scales
};

}  // namespace lamina
