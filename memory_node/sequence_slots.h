// Which slots on a memory node hold the tokens of a sequence, as orders say, and which of them a
// row attends to.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/attention_window.h"
#include "base/status.h"
#include "kernels/kv_cache.h"
#include "memory_node/ordered_steps.h"
#include "memory_node/token_positions.h"
#include "wire/session_messages.h"
#include "wire/step_messages.h"

namespace lamina {

// Of which tokens before those here, or between them, are on other nodes.
using ScatteredSequences = std::unordered_set<SequenceId>;

// Keeps the tables of a KvCache. Thread: one owner.
class SequenceSlots {
 public:
  // Borrows the cache, in which tokens may be already, at these positions. `windows` [layers];
  // empty: rows attend to all tokens in every layer.
  SequenceSlots(KvCache& cache, std::vector<AttentionWindow> windows, TokenPositions positions = {},
                ScatteredSequences scattered = {})
      : cache_(cache),
        windows_(std::move(windows)),
        positions_(std::move(positions)),
        scattered_(std::move(scattered)) {}

  // Releases sequences and enters the new tokens of an order. If the order contradicts the table of
  // a sequence, the log says so and that sequence is forgotten, so that rows of it fail.
  void Apply(const MemoryOrder& order);

  // Forgets all tokens but these. Returns the sequences of which not all of these are here; they
  // are forgotten too.
  std::vector<SequenceId> Keep(std::span<const HeldSequence> held);

  // The sequences whose tokens here are their first ones, ascending, with the slots of those that
  // are written in all layers. Leaves out sequences where all would be more than one message takes.
  std::vector<LeftSequence> Left() const;

  // The slots that the row attends to in a layer, among those of the first `num_tokens` tokens of
  // its sequence here. Valid until the next order. Errors are those of KvCache::Readable.
  Result<std::span<const TokenSlot>> Attended(uint32_t layer, const OrderedRow& row,
                                              int64_t num_tokens) const;

  AttentionWindow window(uint32_t layer) const {
    return layer < windows_.size() ? windows_[layer] : AttentionWindow{};
  }

  // These leave nothing to attend to.
  TokenPositions TakePositions() { return std::move(positions_); }
  ScatteredSequences TakeScattered() { return std::move(scattered_); }

  // Those of `slots` that are inside the row's window. `slots` are those of the first tokens of its
  // sequence here.
  std::span<const TokenSlot> InWindow(const AttentionWindow& window, const OrderedRow& row,
                                      std::span<const TokenSlot> slots) const;

 private:
  // Tokens for which an order gives slots.
  struct NewTokens {
    SequenceId sequence;
    int64_t num_stored = 0;  // tokens of the sequence here before these
    std::span<const TokenSlot> slots;
    int64_t first_position = 0;  // in the sequence
    // K and V come in a message, are made up for a benchmark, or are in the slots already.
    enum class Kv { kComes, kMadeUp, kShared } kv = Kv::kComes;
  };
  // Enters the tokens into the tables. If that fails, the sequence is forgotten.
  void Append(const NewTokens& tokens, StepId step);
  void Release(SequenceId sequence);

  KvCache& cache_;
  const std::vector<AttentionWindow> windows_;
  TokenPositions positions_;  // kept only if there are windows
  ScatteredSequences scattered_;
};

}  // namespace lamina
