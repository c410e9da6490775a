// The interface of a KV cache: tables of token slots for each sequence, and the K and V in the
// slots. There is one for this machine's memory (kv_store.h), one for a GPU
// (cuda/host/kv_cache.h), and one that stands for a device that is only modelled
// (modelled_kv_cache.h). Both kinds of nodes keep KV by it. How a node attends is not part of it:
// a memory node's queries come in messages, a compute node's are in its device's memory.
//
// Which slot a token gets is decided elsewhere (scheduler/slot_allocator.h in the manager process).
// What cannot be right is refused, so that a lost, repeated or late message becomes an error and
// never a wrong answer: positions must continue a table, each layer must be written in order of
// position, and attention may only read tokens that were written.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/elastic_layers.h"

namespace lamina {

// Thread: one owner.
class KvCache {
 public:
  virtual ~KvCache() = default;

  // At present, if that changes.
  virtual int64_t capacity_tokens() const = 0;
  // The layers of which as many have a place as SetLayersInside says; null: always as many have.
  virtual const ElasticLayers* elastic_layers() const { return nullptr; }
  // See ElasticLayers::SetInside, whose errors it has; kUnimplemented if there are none, kCorrupt
  // if a sequence has a slot that there will be no room for. Nothing is changed then.
  virtual Status SetLayersInside(int num_layers) = 0;
  // The number of entries of all tables. A slot that several sequences share counts once for each.
  virtual int64_t used_tokens() const = 0;
  virtual int64_t num_sequences() const = 0;
  // Those that have a table, in no order.
  virtual std::vector<SequenceId> sequences() const = 0;
  // How many of the sequence's first tokens are written in every layer; 0 if it is unknown.
  virtual int64_t NumWritten(SequenceId sequence) const = 0;

  // Continues the table of `sequence`: tokens position, position + 1, ... live in `slots`. Position
  // 0 starts a table. kCorrupt if `position` is not the table's length or a slot is not below
  // capacity_tokens(); nothing is changed then.
  virtual Status Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                        StepId step) = 0;

  // Does the same, fills these slots with made-up K and V and counts them as written in all layers:
  // for benchmarks of decoding at a long context. kNotFound if the table was started after `step`.
  // REQUIRES: all tokens before them were written.
  virtual Status AppendDummy(SequenceId sequence, int64_t position,
                             std::span<const TokenSlot> slots, StepId step) = 0;

  // Starts the table of `sequence` with slots that hold K and V of other sequences' tokens already,
  // so these count as written in all layers. kCorrupt if the sequence has tokens here already or a
  // slot is not below capacity_tokens().
  virtual Status Share(SequenceId sequence, std::span<const TokenSlot> slots, StepId step) = 0;

  // Cuts the table of `sequence` to its first `num_tokens` tokens, so that those behind them can be
  // appended and written once more. Nothing happens if it has no more, or is unknown.
  virtual void Truncate(SequenceId sequence, int64_t num_tokens) = 0;

  // Forgets the sequence. An unknown one is ignored.
  virtual void Release(SequenceId sequence) = 0;

  // Stores K and V of the token at `position` in one layer. k, v: rows of the cache's dtype
  // (KvRowBytes in base/dtype.h), in this host's memory, which is free again when this returns and
  // need not be aligned. kNotFound if the sequence is unknown or its table was started after `step`
  // (a late message: drop it). kCorrupt if there is no such layer, or if `position` is not the next
  // one to be written in it or is not in the table.
  virtual Status WriteRaw(int layer, SequenceId sequence, int64_t position, const void* k,
                          const void* v, StepId step) = 0;

  // Returns the slots of tokens [0, num_tokens), to attend to them in `layer`. They are valid until
  // the sequence's next Append, Truncate or Release. kNotFound if the sequence is unknown; kCorrupt
  // if there is no such layer or not all of these tokens are written in it.
  virtual Result<std::span<const TokenSlot>> Readable(int layer, SequenceId sequence,
                                                      int64_t num_tokens) const = 0;
};

}  // namespace lamina
