// The rows of a step with KV on one memory node, and where in messages they stand.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "compute_node/attention_strategy.h"
#include "compute_node/compute_device.h"
#include "compute_node/memory_peer.h"
#include "compute_node/partial_outputs.h"

namespace lamina {

// Rows are in the order of the manager's order. Row numbers in messages are indices into decode()
// and prefill(); these have indices into the step's rows. Thread: one owner.
class PeerRows {
 public:
  // Borrows both. With sinks the output of a row is merged even if this node alone attends for it.
  PeerRows(const MemoryPeer& peer, const AttentionShape& shape, bool has_sinks)
      : peer_(peer), shape_(shape), has_sinks_(has_sinks) {}

  // A step begins: there are no rows.
  void Clear();
  // Adds row `row` of the step, which is `work`.
  void Add(int row, const AttentionWork& work);

  const std::vector<int>& decode() const { return decode_; }
  const std::vector<int>& stored() const { return stored_; }  // decode rows with K and V to store
  const std::vector<int>& prefill() const { return prefill_; }
  bool empty() const { return decode_.empty() && prefill_.empty(); }
  // Whether outputs of some decode rows are merged, so that log-sum-exps are needed.
  bool wants_lse() const { return wants_lse_; }

  // The node's heads in these rows of q or output, and its kv_heads in these rows of k or v.
  RowParts Heads(std::span<const int> rows) const;
  RowParts KvHeads(std::span<const int> rows) const;

  // Bytes of the outputs and log-sum-exps of the decode rows.
  size_t OutputBytes() const;

  // Calls take(offset, rows) for each run of consecutive decode rows whose outputs are whole: this
  // memory node alone attends for them, and there are no sinks. `offset` is that of the run's
  // output in a reply's payload, in bytes.
  template <typename Take>
  void ForEachWhole(Take take) const;
  // Merges the outputs of the other decode rows. The payload has OutputBytes().
  void MergeOthers(std::span<const std::byte> payload, PartialOutputs& partials) const;

 private:
  const MemoryPeer& peer_;
  const AttentionShape& shape_;
  const bool has_sinks_;
  std::vector<int> decode_, stored_, prefill_;
  std::vector<bool> whole_;  // [decode_], whether nothing is merged with the output
  bool wants_lse_ = false;
};

template <typename Take>
void PeerRows::ForEachWhole(Take take) const {
  for (size_t i = 0; i < decode_.size(); ++i) {
    if (!whole_[i]) continue;
    size_t end = i + 1;
    while (end < decode_.size() && whole_[end]) ++end;
    take(i * peer_.wire().q_row_bytes(), Heads(std::span(decode_).subspan(i, end - i)));
    i = end;  // row `end`, if there is one, is not whole and can be skipped
  }
}

}  // namespace lamina
