// How decode rows of a step get their attention from one memory node. There are two ways: by
// messages that the two hosts exchange (decode_by_messages.h), and by messages that the two devices
// exchange themselves (decode_by_devices.h). Here is what both of them know of the step.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "compute_node/attention_strategy.h"
#include "compute_node/compute_device.h"
#include "compute_node/memory_peers.h"
#include "compute_node/partial_outputs.h"
#include "compute_node/prefill_kv.h"
#include "splitter/model_share.h"
#include "wire/wire_format.h"

namespace lamina {

struct RemoteAttentionOptions {
  uint64_t epoch = 0;
  std::string session_token;              // to show to the memory nodes
  std::string payload_checksum = "auto";  // see NeedsPayloadChecksum
  std::string polling = "host";           // see control::ConfigureCompute
  NodeId self;
  AttentionShape attention;
  std::vector<int64_t> windows = {};  // control::AttentionSpec.windows
  WireShape wire;                     // of a memory node that holds all heads
  int num_layers = 0;                 // of the model
  SliceRange own_layers = {};         // layers with q, k and v computed here; empty: all
  // Token slots for KV of prompts while they are computed, of all batches.
  int64_t prefill_cache_tokens = 0;
  Clock::duration peer_timeout = std::chrono::seconds(10);
};

// What the steps of a session share.
struct RemoteSession {
  const RemoteAttentionOptions options;
  ComputeDevice& device;
  MemoryPeers peers;
  const std::unique_ptr<PrefillKv> prefill;
  StepTrace* trace = nullptr;  // null: nothing is timed
  int num_steps = 0;           // under way, not counting those without rows
};

// A step with the layer that is computed, as far as its memory nodes are concerned.
struct RemoteStepState {
  const uint32_t batch;
  StepId id;
  std::span<const AttentionWork> rows;
  Failures failures;
  AttentionTraffic traffic;
  PartialOutputs partials;
  AttentionValues layer;
  NodeId taker;  // the compute node that gets the outputs of decode rows; 0: this one

  void Fail(int row, const Status& status) {
    failures.emplace(rows[static_cast<size_t>(row)].sequence, status);
  }
  TracedWork Traced(size_t num_rows) const {
    return {id, static_cast<int>(batch), layer.layer, num_rows};
  }
  MessageHeader Header(size_t first_row, size_t num_rows) const {
    return {.step = id.value,
            .layer = static_cast<uint32_t>(layer.layer),
            .first_row = static_cast<uint32_t>(first_row),
            .num_rows = static_cast<uint32_t>(num_rows)};
  }
};

// The rows of a step with KV on one memory node, in the order of the manager's order. Row numbers
// in messages are indices into `decode` and `prefill`; these have indices into the step's rows.
class PeerRows {
 public:
  // Borrows both.
  PeerRows(const MemoryPeer& peer, const AttentionShape& shape) : peer_(peer), shape_(shape) {}

  // A step begins: there are no rows.
  void Clear();
  // Adds row `row` of the step, which is `work`.
  void Add(int row, const AttentionWork& work);

  const std::vector<int>& decode() const { return decode_; }
  const std::vector<int>& stored() const { return stored_; }  // decode rows with K and V to store
  const std::vector<int>& prefill() const { return prefill_; }
  // Whether other nodes have tokens of some decode rows, so that log-sum-exps are needed.
  bool wants_lse() const { return wants_lse_; }

  // The node's heads in these rows of q or output, and its kv_heads in these rows of k or v.
  RowParts Heads(std::span<const int> rows) const;
  RowParts KvHeads(std::span<const int> rows) const;

  // Bytes of the outputs and log-sum-exps of the decode rows.
  size_t OutputBytes() const;

  // Calls take(offset, rows) for each run of consecutive decode rows for which this memory node
  // alone attends. `offset` is that of the run's output in a reply's payload, in bytes.
  template <typename Take>
  void ForEachWhole(Take take) const;
  // Merges the outputs of the other decode rows. The payload has OutputBytes().
  void MergeOthers(std::span<const std::byte> payload, PartialOutputs& partials) const;

 private:
  const MemoryPeer& peer_;
  const AttentionShape& shape_;
  std::vector<int> decode_, stored_, prefill_;
  std::vector<bool> whole_;  // [decode_], whether no other node has tokens of the sequence
  bool wants_lse_ = false;
};

// For each layer: Send, Await as soon as nothing is missing, Take as soon as the reply is not being
// fetched. The object is used for one step of a batch after the other, and it borrows the step's
// state. Thread: one owner.
class DecodePath {
 public:
  virtual ~DecodePath() = default;

  // A step begins: nothing of an earlier one is expected.
  virtual void Begin() = 0;

  // Asks the memory node for the attention of the layer. If the node cannot be reached it is lost.
  // REQUIRES: there are decode rows, and the node is not lost.
  virtual void Send() = 0;

  // Whether Await has to be put off, because the reply is not here or something is still to be
  // sent. If that takes too long, the caller loses the node.
  virtual bool missing() const = 0;

  // Makes the device wait for the reply if it is the device that gets it. Returns whether this host
  // has waited instead. Later calls for the same layer do nothing more. REQUIRES: !missing().
  virtual bool Await() = 0;

  // Whether Take has to be put off until the device has told how the reply turned out.
  virtual bool fetching() const = 0;

  // Takes the reply: outputs go to the layer's `out` or to the partials, failed rows to the
  // failures. Does nothing if no reply was expected, or the node is lost. REQUIRES: !fetching().
  virtual void Take() = 0;
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
