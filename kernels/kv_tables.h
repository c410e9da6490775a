// Which token slots hold the tokens of each sequence on one node, and which of these tokens have
// been written in which layer. The tables hold numbers only; the memory of the slots belongs to
// whoever uses them (kernels/kv_store.h on a CPU, kernels/cuda/host/kv_cache.h on a GPU).
//
// Every call that changes a table names the step that asks for it, and what cannot be right is
// refused: a lost, repeated or late message becomes an error and never a wrong answer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/elastic_layers.h"

namespace lamina {

// Thread: one owner.
class KvTables {
 public:
  struct Table {
    std::vector<TokenSlot> slots;  // of the tokens at positions 0, 1, 2, ...
    std::vector<int64_t> written;  // [num_layers], how many tokens from the first on are written
    StepId since;                  // the step that started the table
  };

  // Slots are the numbers [0, capacity_tokens), or, if layers are given, so many as these have room
  // for at present. Borrows them.
  KvTables(int num_layers, int64_t capacity_tokens, ElasticLayers* layers = nullptr)
      : num_layers_(num_layers), capacity_tokens_(capacity_tokens), layers_(layers) {}

  int64_t capacity_tokens() const {
    return layers_ == nullptr ? capacity_tokens_
                              : layers_->kv().Tokens(layers_->inside().num_layers);
  }
  // See KvCache. kCorrupt if a table has a slot that there will be no room for.
  Status SetLayersInside(int num_layers);
  const ElasticLayers* elastic_layers() const { return layers_; }
  // The number of entries of all tables. A slot that several sequences share counts once for each.
  int64_t used_tokens() const { return used_tokens_; }
  int64_t num_sequences() const { return static_cast<int64_t>(tables_.size()); }
  // Those that have a table, in no order.
  std::vector<SequenceId> sequences() const;
  // How many of the sequence's first tokens are written in every layer; 0 if it is unknown.
  int64_t NumWritten(SequenceId sequence) const;

  // Continues the table of `sequence`: tokens position, position + 1, ... live in `slots`. Position
  // 0 starts a table, with `step` as the one that started it. kCorrupt if `position` is not the
  // table's length or a slot is not below capacity_tokens(); nothing is changed then.
  Status Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                StepId step);

  // Starts the table of `sequence` with slots that hold K and V of other sequences' tokens already,
  // so these count as written in all layers. kCorrupt if the sequence has tokens here already or a
  // slot is not below capacity_tokens(); nothing is changed then.
  Status Share(SequenceId sequence, std::span<const TokenSlot> slots, StepId step);

  // Returns the slot for K and V of the token at `position` in `layer`, and counts the token as
  // written there: the caller writes it now. Each layer is written in order of position, each token
  // once. kNotFound if the sequence is unknown or its table was started after `step` (a late
  // message: drop it). kCorrupt if there is no such layer, or if `position` is not the next one to
  // be written in it or is not in the table; nothing is changed then.
  Result<TokenSlot> Claim(int layer, SequenceId sequence, int64_t position, StepId step);

  // Makes exactly tokens [0, num_tokens) count as written in all layers. kNotFound if the sequence
  // is unknown or its table was started after `step`. REQUIRES: the table has num_tokens tokens.
  Status ClaimAll(SequenceId sequence, int64_t num_tokens, StepId step);

  // Returns the slots of tokens [0, num_tokens), to attend to them in `layer`. They are valid until
  // the sequence's next Append, Truncate or Release. kNotFound if the sequence is unknown; kCorrupt
  // if there is no such layer or not all of these tokens are written in it.
  Result<std::span<const TokenSlot>> Readable(int layer, SequenceId sequence,
                                              int64_t num_tokens) const;

  // Cuts the table to its first `num_tokens` tokens; those behind them count as never written.
  // Nothing happens if there are no more, or the sequence is unknown.
  void Truncate(SequenceId sequence, int64_t num_tokens);

  // Forgets the sequence. An unknown one is ignored.
  void Release(SequenceId sequence);

  // Returns the sequence's table, valid until its Release. kNotFound if the sequence is unknown or,
  // where a step is named, if its table was started after `step` (a late message: drop it).
  Result<Table*> Find(SequenceId sequence, StepId step);
  Result<const Table*> Find(SequenceId sequence) const;

 private:
  const int num_layers_;
  const int64_t capacity_tokens_;
  ElasticLayers* const layers_;
  int64_t used_tokens_ = 0;
  std::unordered_map<SequenceId, Table> tables_;
};

// "sequence 7", for errors.
std::string NameOf(SequenceId sequence);

}  // namespace lamina
