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

// Owns the slot tables of the sequences and the K and V in the slots. A lost, repeated or late
// message becomes an error here and never a wrong answer: positions must continue a table, each
// layer must be written in order of position, and only tokens that were written can be read.
// Pointers are to this host's memory. Thread: one owner.
class KvDevice {
 public:
  virtual ~KvDevice() = default;

  virtual int64_t capacity_tokens() const = 0;
  // The number of entries of all tables. A slot that several sequences share counts once for each.
  virtual int64_t used_tokens() const = 0;
  virtual int64_t num_sequences() const = 0;

  // Continues the table of `sequence`: tokens position, position + 1, ... live in `slots`. Position
  // 0 starts a table. kCorrupt if `position` is not the table's length or a slot is not below
  // capacity_tokens(); nothing is changed then.
  virtual Status Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                        StepId step) = 0;

  // Does the same, and fills the slots with made-up K and V that count as written in all layers:
  // for benchmarks of decoding at a long context. kNotFound if the table was started after `step`.
  // This default is for devices that keep no K and V.
  virtual Status AppendDummy(SequenceId sequence, int64_t position,
                             std::span<const TokenSlot> slots, StepId step) {
    return Append(sequence, position, slots, step);
  }

  // Starts the table of `sequence` with slots that hold K and V of other sequences' tokens already,
  // so these count as written in all layers. kCorrupt if the sequence has tokens here already or a
  // slot is not below capacity_tokens().
  virtual Status Share(SequenceId sequence, std::span<const TokenSlot> slots, StepId step) = 0;

  // Forgets the sequence. An unknown one is ignored.
  virtual void Release(SequenceId sequence) = 0;

  // Stores K and V of the token at `position` in one layer. k, v: [num_kv_heads, head_dim] of the
  // cache's dtype, free again when this returns. kNotFound if the sequence is unknown or its table
  // was started after `step` (a late message: drop it). kCorrupt if there is no such layer, or if
  // `position` is not the next one to be written in it or is not in the table.
  virtual Status WriteRaw(int layer, SequenceId sequence, int64_t position, const void* k,
                          const void* v, StepId step) = 0;

  // Returns the slots of tokens [0, num_tokens), to attend to them in `layer`. They are valid until
  // the sequence's next Append or Release. kNotFound if the sequence is unknown; kCorrupt if there
  // is no such layer or not all of these tokens are written in it.
  virtual Result<std::span<const TokenSlot>> Readable(int layer, SequenceId sequence,
                                                      int64_t num_tokens) const = 0;

  // Attention of each row over its slots. `dtype` is that of q and out. Returns when the outputs of
  // all rows are complete. REQUIRES: the slots come from Readable of this layer.
  virtual void Attend(const AttentionShape& shape, int layer, DType dtype,
                      std::span<const KvQuery> rows) = 0;

  // Does the same, and merges the result into the attention over other tokens that out and lse hold
  // already. REQUIRES: lse is not null.
  virtual void AttendMore(const AttentionShape& shape, int layer, DType dtype,
                          std::span<const KvQuery> rows) = 0;

  // Makes the object by which this device is asked for attention before there are queries. It
  // borrows the device. When it has joined a compute node, K and V given to WriteRaw reach the
  // device with its next Attend at the latest, and Attend and AttendMore of this class must not be
  // called any more. kUnimplemented, saying why, if the device cannot do this; other errors if it
  // has no memory left for it.
  virtual Result<std::unique_ptr<AheadAttention>> MakeAheadAttention(
      const AttentionShape& /*shape*/, const WireShape& /*wire*/) {
    return Unimplemented("the memory node's device is no GPU");
  }
};

}  // namespace lamina
