// What a memory node keeps KV in and attends with: this machine's CPU (cpu_kv_device.h), or a device that is only modelled
// (modelled_kv_device.h). The attention service does not know which.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/attention.h"

namespace lamina {

// Tables of token slots by sequence, their K and V, and attention over them. Calls mean what those of the same names in kernels/kv_store.h
// and kernels/attention.h do, with their errors. Thread: one owner.
class KvDevice {
 public:
  virtual ~KvDevice() = default;

  virtual int64_t capacity_tokens() const = 0;
  virtual int64_t used_tokens() const = 0;
  virtual int64_t num_sequences() const = 0;

  virtual Status Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots, StepId step) = 0;
  virtual void Release(SequenceId sequence) = 0;
  virtual Status Write(int layer, SequenceId sequence, int64_t position, const float* k, const float* v, StepId step) = 0;
  virtual Status WriteRaw(int layer, SequenceId sequence, int64_t position, const void* k, const void* v, StepId step) = 0;
  virtual Result<std::span<const TokenSlot>> Readable(int layer, SequenceId sequence, int64_t num_tokens) const = 0;

  // Returns when the outputs of all rows are there.
  virtual void Attend(const AttentionShape& shape, int layer, std::span<const AttentionRow> rows) = 0;
};

}  // namespace lamina
