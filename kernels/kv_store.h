// The KV cache of one device: a slab of token slots plus, for each sequence, the table of the slots that hold its tokens.
//
// It only stores. Which slot a token gets is decided elsewhere (scheduler/slot_allocator.h in the manager process); this class refuses what
// cannot be right, so that a lost or repeated message becomes an error and never a wrong answer: positions must continue a table, layers
// must be written in order of position, and attention may only read tokens that were written.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/token_slab.h"

namespace lamina {

// Thread: one owner.
class KvStore {
 public:
  // kOutOfSpace if the slab's memory cannot be had.
  static Result<std::unique_ptr<KvStore>> Create(const KvShape& shape, int64_t capacity_tokens);

  const KvShape& shape() const { return slab_->shape(); }
  int64_t capacity_tokens() const { return slab_->capacity_tokens(); }
  int64_t used_tokens() const { return used_tokens_; }  // entries of all tables
  int64_t num_sequences() const { return static_cast<int64_t>(tables_.size()); }

  // Continues the table of `sequence`: tokens position, position + 1, ... live in `slots`. Position 0 starts a table. `step` is remembered
  // with a new table: see Write. kCorrupt if position is not the table's length or a slot is out of range; nothing is changed then.
  Status Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots, StepId step);

  // Forgets the sequence. Unknown ones are ignored.
  void Release(SequenceId sequence);

  // Stores K and V of one token and layer, fp32 (rounded to the slab's type) or already in the slab's type.
  // kNotFound if the sequence is unknown or younger than `step` (a late message: drop it). kCorrupt if the token before it was not written
  // or `position` is not in the table.
  Status Write(int layer, SequenceId sequence, int64_t position, const float* k, const float* v, StepId step);
  Status WriteRaw(int layer, SequenceId sequence, int64_t position, const void* k, const void* v, StepId step);

  // Slots of tokens [0, num_tokens) for attention in `layer`. kNotFound: unknown sequence. kCorrupt: one of them was not written in this
  // layer. Valid until the sequence's next Append or Release.
  Result<std::span<const TokenSlot>> Readable(int layer, SequenceId sequence, int64_t num_tokens) const;

  KvView View(int layer) const { return slab_->View(layer); }

 private:
  struct Table {
    std::vector<TokenSlot> slots;
    std::vector<int64_t> written;  // [num_layers] tokens written so far
    StepId since;
  };

  explicit KvStore(std::unique_ptr<TokenSlab> slab) : slab_(std::move(slab)) {}
  Result<TokenSlot> Claim(int layer, SequenceId sequence, int64_t position, StepId step);

  std::unique_ptr<TokenSlab> slab_;
  std::unordered_map<SequenceId, Table> tables_;
  int64_t used_tokens_ = 0;
};

}  // namespace lamina
