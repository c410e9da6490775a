// The interface of the device in which a memory node keeps the KV cache and with which it attends.
// There are three: this machine's CPU (cpu_kv_device.h), a GPU (cuda/cuda_kv_device.h), and a
// device that is only modelled (modelled_kv_device.h). AttentionService does not know which it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/dtype.h"
#include "base/ids.h"
#include "base/status.h"
#include "kernels/attention.h"
#include "kernels/kv_cache.h"
#include "memory_node/ahead_attention.h"
#include "wire/wire_format.h"

namespace lamina {

// One query row of a message. q and out are in the message's dtype and may lie in the message.
struct KvQuery {
  const std::byte* q = nullptr;      // [num_heads, head_dim]
  std::span<const TokenSlot> slots;  // the tokens that the row attends to
  std::byte* out = nullptr;          // [num_heads, head_dim], normalised
  float* lse = nullptr;              // [num_heads], natural log-sum-exp; may be null
};

// Owns the KV cache. Pointers are to this host's memory. Thread: one owner.
class KvDevice {
 public:
  virtual ~KvDevice() = default;

  // The tables and the K and V that Attend reads.
  virtual KvCache& cache() = 0;

  // Attention of each row over its slots. `dtype` is that of q and out. Returns when the outputs of
  // all rows are complete. REQUIRES: the slots come from KvCache::Readable of this layer.
  virtual void Attend(const AttentionShape& shape, int layer, DType dtype,
                      std::span<const KvQuery> rows) = 0;

  // Does the same, and merges the result into the attention over other tokens that out and lse hold
  // already. REQUIRES: lse is not null.
  virtual void AttendMore(const AttentionShape& shape, int layer, DType dtype,
                          std::span<const KvQuery> rows) = 0;

  // Makes the object by which this device is asked for attention before there are queries. It
  // borrows the device. When it has joined a compute node, K and V given to KvCache::WriteRaw reach
  // the device with its next Attend at the latest, and Attend and AttendMore of this class must not
  // be called any more. kUnimplemented, saying why, if the device cannot do this; other errors if
  // it has no memory left for it.
  virtual Result<std::unique_ptr<AheadAttention>> MakeAheadAttention(const AttentionShape& shape,
                                                                     const WireShape& wire) = 0;
};

}  // namespace lamina
