// The KV cache of one CPU: a slab of token slots plus, for each sequence, the table of the slots
// that hold its tokens. kernels/cuda/host/kv_cache.h is its counterpart for a GPU.
//
// It only stores. Which slot a token gets is decided elsewhere (scheduler/slot_allocator.h in the
// manager process); this class refuses what cannot be right, so that a lost, repeated or late
// message becomes an error and never a wrong answer: positions must continue a table, each layer
// must be written in order of position, and attention may only read tokens that were written.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/kv_tables.h"
#include "kernels/token_slab.h"

namespace lamina {

// Owns the slab and the tables. Thread: one owner.
class KvStore {
 public:
  // Errors are those of TokenSlab::Create.
  static Result<std::unique_ptr<KvStore>> Create(const KvShape& shape, int64_t capacity_tokens);

  const KvShape& shape() const { return slab_->shape(); }
  int64_t capacity_tokens() const { return slab_->capacity_tokens(); }
  // The number of entries of all tables. A slot that several sequences share counts once for each.
  int64_t used_tokens() const { return tables_.used_tokens(); }
  int64_t num_sequences() const { return tables_.num_sequences(); }

  // Continues the table of `sequence`: tokens position, position + 1, ... live in `slots`. Position
  // 0 starts a table. kCorrupt if `position` is not the table's length or a slot is not below
  // capacity_tokens(); nothing is changed then.
  Status Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                StepId step) {
    return tables_.Append(sequence, position, slots, step);
  }

  // Does the same, fills these slots with made-up K and V and counts them as written in all layers:
  // for benchmarks of decoding at a long context. kNotFound if the table was started after `step`.
  // REQUIRES: all tokens before them were written.
  Status AppendDummy(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                     StepId step);

  // Starts the table of `sequence` with slots that hold K and V of other sequences' tokens already,
  // so these count as written in all layers. kCorrupt if the sequence has tokens here already or a
  // slot is not below capacity_tokens().
  Status Share(SequenceId sequence, std::span<const TokenSlot> slots, StepId step) {
    return tables_.Share(sequence, slots, step);
  }

  // Forgets the sequence. An unknown one is ignored.
  void Release(SequenceId sequence) { tables_.Release(sequence); }

  // Stores K and V of the token at `position` in one layer. Each layer is written in order of
  // position, each token once. k, v: [num_kv_heads, head_dim], fp32 for Write, which rounds them,
  // and of the slab's dtype for WriteRaw. kNotFound if the sequence is unknown or its table was
  // started after `step` (a late message: drop it). kCorrupt if there is no such layer, or if
  // `position` is not the next one to be written in it or is not in the table.
  Status Write(int layer, SequenceId sequence, int64_t position, const float* k, const float* v,
               StepId step);
  Status WriteRaw(int layer, SequenceId sequence, int64_t position, const void* k, const void* v,
                  StepId step);

  // Returns the slots of tokens [0, num_tokens), to attend to them in `layer`. They are valid until
  // the sequence's next Append or Release. kNotFound if the sequence is unknown; kCorrupt if there
  // is no such layer or not all of these tokens are written in it.
  Result<std::span<const TokenSlot>> Readable(int layer, SequenceId sequence,
                                              int64_t num_tokens) const {
    return tables_.Readable(layer, sequence, num_tokens);
  }

  // One layer of the slab, as kernels see it. Valid as long as the store.
  KvView View(int layer) const { return slab_->View(layer); }

 private:
  explicit KvStore(std::unique_ptr<TokenSlab> slab)
      : slab_(std::move(slab)), tables_(slab_->shape().num_layers, slab_->capacity_tokens()) {}

  std::unique_ptr<TokenSlab> slab_;
  KvTables tables_;
};

}  // namespace lamina
