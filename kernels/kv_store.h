// The KV cache of one device: a slab of token slots plus, for each sequence, the table of the slots
// that hold its tokens.
//
// It only stores. Which slot a token gets is decided elsewhere (scheduler/slot_allocator.h in the
// manager process); this class refuses what cannot be right, so that a lost or repeated message
// becomes an error and never a wrong answer: positions must continue a table, layers must be
// written in order of position, and attention may only read tokens that were written.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/kv_tables.h"
#include "kernels/token_slab.h"

namespace lamina {

// Thread: one owner.
class KvStore {
 public:
  // kOutOfSpace if the slab's memory cannot be had.
  static Result<std::unique_ptr<KvStore>> Create(const KvShape& shape, int64_t capacity_tokens);

  const KvShape& shape() const { return slab_->shape(); }
  int64_t capacity_tokens() const { return slab_->capacity_tokens(); }
  int64_t used_tokens() const { return tables_.used_tokens(); }
  int64_t num_sequences() const { return tables_.num_sequences(); }

  // As KvTables's.
  Status Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                StepId step) {
    return tables_.Append(sequence, position, slots, step);
  }
  // Likewise, and K and V of these tokens are made up and count as written in all layers: for
  // benchmarks of decoding at a long context. REQUIRES: all tokens before them were written.
  Status AppendDummy(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                     StepId step);
  Status Share(SequenceId sequence, std::span<const TokenSlot> slots, StepId step) {
    return tables_.Share(sequence, slots, step);
  }
  void Release(SequenceId sequence) { tables_.Release(sequence); }

  // Stores K and V of one token and layer, fp32 (rounded to the slab's type) or already in the
  // slab's type. Errors as KvTables::Claim.
  Status Write(int layer, SequenceId sequence, int64_t position, const float* k, const float* v,
               StepId step);
  Status WriteRaw(int layer, SequenceId sequence, int64_t position, const void* k, const void* v,
                  StepId step);

  // As KvTables's.
  Result<std::span<const TokenSlot>> Readable(int layer, SequenceId sequence,
                                              int64_t num_tokens) const {
    return tables_.Readable(layer, sequence, num_tokens);
  }

  KvView View(int layer) const { return slab_->View(layer); }

 private:
  explicit KvStore(std::unique_ptr<TokenSlab> slab)
      : slab_(std::move(slab)), tables_(slab_->shape().num_layers, slab_->capacity_tokens()) {}

  std::unique_ptr<TokenSlab> slab_;
  KvTables tables_;
};

}  // namespace lamina
