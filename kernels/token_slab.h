// The memory of a KV cache on a CPU: K and V of every layer for a fixed number of token slots. It
// knows nothing of sequences; kernels/kv_store.h adds these.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/attention.h"
#include "kernels/cpu/prefault.h"
#include "kernels/layer_memory.h"

namespace lamina {

// What a token slot holds: K and V of one token, in every layer and for every kv_head of the node.
struct KvShape {
  int num_layers = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  DType dtype = DType::kBF16;

  // K and V of one token over all layers.
  int64_t bytes_per_token() const {
    return int64_t{2} * num_layers * KvRowBytes(dtype, num_kv_heads, head_dim);
  }
};

// Owns the memory of all slots. Its layout is [layer][K, V][kv_head][slot][head_dim], so that for
// one head a sequence in consecutive slots is one contiguous stream. If the dtype has scales, they
// follow behind all layers as [layer][K, V][kv_head][slot], which leaves vectors of elements
// aligned. Where layers are not all in memory, each scale follows the elements that it belongs to
// instead, [layer][K, V][kv_head][slot][head_dim + 4 bytes]: what belongs to a kv_head is then one
// run of bytes, as such layers want it.
//
// Thread: writes to distinct slots and reads of other slots may run at the same time; the caller
// orders a slot's write before its reads. FillDummy: one thread at a time.
class TokenSlab {
 public:
  // Reserves the memory, zeroed on first touch, in huge pages where the kernel gives them.
  // kInvalidArgument if there are no layers or kv_heads, if head_dim is not a multiple of 8 in [8,
  // 256], or if capacity_tokens is not in [1, 2^32 - 1]; kOutOfSpace if the host has less memory
  // available (the message has both figures) or the system refuses it.
  static Result<std::unique_ptr<TokenSlab>> Create(const KvShape& shape, int64_t capacity_tokens);
  // The same with layers that are not all in this machine's memory at a time, and as many slots as
  // their pitch. kOutOfSpace does not happen. One thread at a time may use the slab then, and a
  // view is valid until another layer is used.
  static Result<std::unique_ptr<TokenSlab>> CreateIn(std::unique_ptr<LayerMemory> layers,
                                                     const KvShape& shape);
  ~TokenSlab();
  TokenSlab(const TokenSlab&) = delete;
  TokenSlab& operator=(const TokenSlab&) = delete;

  const KvShape& shape() const { return shape_; }
  int64_t capacity_tokens() const { return capacity_tokens_; }

  // Has a thread give slots their pages before they are written, so that serving does not wait for
  // them: in each layer and head as soon as half of the huge page before is written.
  void StartPrefault();

  // One layer, as kernels see it. Valid as long as the slab.
  KvView View(int layer) const;

  // Every function below REQUIRES: slot < capacity_tokens().

  // Stores one token's K and V of one layer, rounded to the slab's dtype (to nearest even; kF8
  // saturates; with scales as by RoundWithScale). k, v: [num_kv_heads, head_dim] fp32.
  void Write(int layer, TokenSlot slot, const float* k, const float* v);

  // Stores one token's K and V of one layer as they are. k, v: rows of the slab's dtype (KvRowBytes
  // in base/dtype.h), which need not be aligned.
  void WriteRaw(int layer, TokenSlot slot, const void* k, const void* v);

  // Fills slots in all layers with pseudo-random values in [-1, 1], which differ between
  // neighbouring slots, layers and heads: for benchmarks.
  void FillDummy(std::span<const TokenSlot> slots);

 private:
  TokenSlab(const KvShape& shape, int64_t capacity_tokens, std::byte* memory, size_t memory_bytes);
  // Of a layer.
  std::byte* Begin(int layer, bool writes) const;
  // The n-th of the layer's heads, those of K before those of V.
  int HeadOf(int k_or_v, int kv_head) const { return k_or_v * shape_.num_kv_heads + kv_head; }
  // Where head_dim elements of one slot begin, from the layer's begin on.
  int64_t At(int head, TokenSlot slot) const {
    return (head * capacity_tokens_ + int64_t{slot}) * slot_bytes();
  }
  // The scales of a layer, whose elements begin at `begin`. Null if there are none.
  std::byte* Scales(int layer, std::byte* begin) const;
  // Where the scale of one slot is, from there on.
  int64_t ScaleAt(int head, TokenSlot slot) const {
    return (head * capacity_tokens_ + int64_t{slot}) * scale_slot_bytes();
  }
  bool scales_follow_slots() const { return HasScales(shape_.dtype) && layers_ != nullptr; }
  // Of elements, without scales.
  int64_t row_bytes() const {
    return shape_.head_dim * static_cast<int64_t>(ElementSize(shape_.dtype));
  }
  // From one slot to the next.
  int64_t slot_bytes() const { return row_bytes() + (scales_follow_slots() ? 4 : 0); }
  int64_t scale_slot_bytes() const { return scales_follow_slots() ? slot_bytes() : 4; }
  int64_t layer_bytes() const {
    return int64_t{2} * shape_.num_kv_heads * capacity_tokens_ * slot_bytes();
  }
  // A slot is about to be written.
  void Reach(TokenSlot slot) {
    if (slot >= next_half_page_.load(std::memory_order_relaxed)) ReachPage(slot);
  }
  void ReachPage(TokenSlot slot);

  // A prime, so that FillDummy's rows begin at values spread over all of them.
  static constexpr size_t kNumDummyValues = 4093;
  KvShape shape_;
  int64_t capacity_tokens_;
  // [num_layers, 2, num_kv_heads, capacity_tokens, head_dim] of the dtype, then, if that has
  // scales, [num_layers, 2, num_kv_heads, capacity_tokens] fp32.
  std::byte* memory_;
  size_t memory_bytes_;
  std::unique_ptr<LayerMemory> layers_;  // in place of it, by layer; null: all are in memory_
  // [kNumDummyValues + head_dim] in the slab's dtype; empty before the first FillDummy.
  std::vector<std::byte> dummy_;
  float dummy_scale_ = 0;  // of all of them, if the dtype has scales
  // The first slot behind the halves of pages that were written; the largest number before
  // StartPrefault.
  std::atomic<int64_t> next_half_page_{std::numeric_limits<int64_t>::max()};
  std::unique_ptr<Prefault> prefault_;
  std::unique_ptr<Prefault> scale_prefault_;  // of the scales; null if there are none
};

}  // namespace lamina
