// The memory of a KV cache: K and V of every layer for a fixed number of token slots, and how
// kernels address it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/attention.h"

namespace lamina {

struct KvShape {
  int num_layers = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  DType dtype = DType::kBF16;

  // K and V of one token over all layers.
  int64_t bytes_per_token() const {
    return int64_t{2} * num_layers * num_kv_heads * head_dim *
           static_cast<int64_t>(ElementSize(dtype));
  }
};

// Layout per layer: [kv_head][slot][head_dim], K and V apart, so that a sequence whose slots run on
// is a stream per head. Thread: Write to distinct slots and reads of other slots may run together;
// the caller orders a slot's write before its reads.
class TokenSlab {
 public:
  // kOutOfSpace if the memory cannot be had, saying how much was asked for. Memory is reserved,
  // zeroed on first touch, in huge pages where the kernel gives them.
  static Result<std::unique_ptr<TokenSlab>> Create(const KvShape& shape, int64_t capacity_tokens);
  ~TokenSlab();
  TokenSlab(const TokenSlab&) = delete;
  TokenSlab& operator=(const TokenSlab&) = delete;

  const KvShape& shape() const { return shape_; }
  int64_t capacity_tokens() const { return capacity_tokens_; }

  KvView View(int layer) const;

  // Stores one token's K and V of one layer. k, v: [num_kv_heads, head_dim] fp32 (converted, round
  // to nearest even). REQUIRES: slot < capacity_tokens().
  void Write(int layer, TokenSlot slot, const float* k, const float* v);

  // The same from memory that is already in the slab's dtype.
  void WriteRaw(int layer, TokenSlot slot, const void* k, const void* v);

  // Fills a slot in all layers with made-up values within [-1, 1], which differ between slots,
  // layers and heads.
  void FillDummy(TokenSlot slot);

  // Overwrites a slot in all layers with NaN, so that a read of freed or unwritten memory shows in
  // tests.
  void Poison(TokenSlot slot);

 private:
  TokenSlab(const KvShape& shape, int64_t capacity_tokens, std::byte* memory, size_t memory_bytes);
  std::byte* At(int layer, int k_or_v, int kv_head, TokenSlot slot) const;

  static constexpr size_t kNumDummyValues = 4093;  // a prime: rows start at different ones
  KvShape shape_;
  int64_t capacity_tokens_;
  std::byte* memory_;
  size_t memory_bytes_;
  // [kNumDummyValues + head_dim] in the slab's dtype; empty before the first FillDummy.
  std::vector<std::byte> dummy_;
};

}  // namespace lamina
