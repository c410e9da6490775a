// What a memory node keeps KV in and attends with: this machine's CPU (cpu_kv_device.h), a GPU
// (cuda/cuda_kv_device.h), or a device that is only modelled (modelled_kv_device.h). The attention
// service does not know which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/dtype.h"
#include "base/ids.h"
#include "base/status.h"
#include "kernels/attention.h"
#include "memory_node/ahead_attention.h"
#include "wire/wire_format.h"

namespace lamina {

// One query row as it stands in messages, in their dtype.
struct KvQuery {
  const std::byte* q = nullptr;      // [num_heads, head_dim]
  std::span<const TokenSlot> slots;  // of the tokens that it attends to
  std::byte* out = nullptr;          // [num_heads, head_dim], normalised
  // [num_heads] natural log-sum-exp of the scaled scores; may be null.
  float* lse = nullptr;
};

// Tables of token slots by sequence, their K and V, and attention over them. Calls mean what those
// of the same names in kernels/kv_store.h and kernels/attention.h do, with their errors. Thread:
// one owner.
class KvDevice {
 public:
  virtual ~KvDevice() = default;

  virtual int64_t capacity_tokens() const = 0;
  virtual int64_t used_tokens() const = 0;
  virtual int64_t num_sequences() const = 0;

  virtual Status Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                        StepId step) = 0;
  // As Append on a device that keeps no K and V.
  virtual Status AppendDummy(SequenceId sequence, int64_t position,
                             std::span<const TokenSlot> slots, StepId step) {
    return Append(sequence, position, slots, step);
  }
  virtual Status Share(SequenceId sequence, std::span<const TokenSlot> slots, StepId step) = 0;
  virtual void Release(SequenceId sequence) = 0;
  virtual Status WriteRaw(int layer, SequenceId sequence, int64_t position, const void* k,
                          const void* v, StepId step) = 0;
  virtual Result<std::span<const TokenSlot>> Readable(int layer, SequenceId sequence,
                                                      int64_t num_tokens) const = 0;

  // `dtype`: of q and out. Returns when the outputs of all rows are there.
  virtual void Attend(const AttentionShape& shape, int layer, DType dtype,
                      std::span<const KvQuery> rows) = 0;

  // Likewise, and merges with the attention over other tokens that stands in out and lse. REQUIRES:
  // lse is not null.
  virtual void AttendMore(const AttentionShape& shape, int layer, DType dtype,
                          std::span<const KvQuery> rows) = 0;

  // Once it has joined a compute node, WriteRaw only collects what its Attend sees to, and this
  // device's Attend and AttendMore are not called any more. Borrows the device. kUnimplemented says
  // why there is none.
  virtual Result<std::unique_ptr<AheadAttention>> MakeAheadAttention(
      const AttentionShape& /*shape*/, const WireShape& /*wire*/) {
    return Unimplemented("the memory node's device is no GPU");
  }
};

}  // namespace lamina
