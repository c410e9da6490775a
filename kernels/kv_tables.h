// Which token slots hold the tokens of each sequence, on one node. Only numbers live here; what
// stands in the slots is the owner's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace lamina {

// Thread: one owner.
class KvTables {
 public:
  struct Table {
    std::vector<TokenSlot> slots;  // by position
    std::vector<int64_t> written;  // [num_layers] tokens written so far
    StepId since;                  // the step that started the table
  };

  // Slots are [0, capacity_tokens).
  KvTables(int num_layers, int64_t capacity_tokens)
      : num_layers_(num_layers), capacity_tokens_(capacity_tokens) {}

  int64_t capacity_tokens() const { return capacity_tokens_; }
  // Entries of all tables: a shared slot has several.
  int64_t used_tokens() const { return used_tokens_; }
  int64_t num_sequences() const { return static_cast<int64_t>(tables_.size()); }

  // Continues the table of `sequence`: tokens position, position + 1, ... live in `slots`. Position
  // 0 starts a table. kCorrupt if position is not the table's length or a slot is out of range;
  // nothing is changed then.
  Status Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                StepId step);

  // Starts the table of `sequence` with slots that hold K and V of other sequences' tokens already,
  // which count as written in all layers. kCorrupt as Append's.
  Status Share(SequenceId sequence, std::span<const TokenSlot> slots, StepId step);

  // The slot for K and V of the sequence's token at `position` in `layer`, which count as written
  // from here on. kNotFound as Find. kCorrupt if the token before it was not written or `position`
  // is not in the table.
  Result<TokenSlot> Claim(int layer, SequenceId sequence, int64_t position, StepId step);

  // All tokens of the table count as written in all layers up to `num_tokens`.
  Status ClaimAll(SequenceId sequence, int64_t num_tokens, StepId step);

  // Slots of tokens [0, num_tokens). kNotFound: unknown sequence. kCorrupt: one of them was not
  // written in this layer. Valid until the sequence's next Append or Release.
  Result<std::span<const TokenSlot>> Readable(int layer, SequenceId sequence,
                                              int64_t num_tokens) const;

  // Forgets the sequence. Unknown ones are ignored.
  void Release(SequenceId sequence);

  // kNotFound: the sequence is unknown, or younger than `step` (a late message: drop it). Valid
  // until the sequence's next Append or Release.
  Result<Table*> Find(SequenceId sequence, StepId step);
  Result<const Table*> Find(SequenceId sequence) const;

 private:
  const int num_layers_;
  const int64_t capacity_tokens_;
  int64_t used_tokens_ = 0;
  std::unordered_map<SequenceId, Table> tables_;
};

// "sequence 7", for errors.
std::string NameOf(SequenceId sequence);

}  // namespace lamina
