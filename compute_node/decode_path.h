// How decode rows of a step get their attention from one memory node. There are two ways: by
// messages that the two hosts exchange (decode_by_messages.h), and by messages that the two devices
// exchange themselves (decode_by_devices.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "compute_node/attention_strategy.h"
#include "compute_node/partial_outputs.h"
#include "compute_node/step_trace.h"
#include "wire/wire_format.h"

namespace lamina {

// A step with the layer that is computed, as far as its memory nodes are concerned.
struct RemoteStepState {
  const uint32_t batch;
  StepId id = {};
  std::span<const AttentionWork> rows = {};
  Failures failures = {};
  AttentionTraffic traffic = {};
  PartialOutputs partials;
  AttentionValues layer = {};
  NodeId taker = {};  // the compute node that gets the outputs of decode rows; 0: this one

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

// For each layer: Send, Await as soon as nothing is missing, Take as soon as the reply is not being
// fetched. The object is used for one step of a batch after the other, and it borrows the step's
// state. Thread: one owner.
class DecodePath {
 public:
  virtual ~DecodePath() = default;

  // A step begins: nothing of an earlier one is expected.
  virtual void Begin() = 0;

  // Asks the memory node for the attention of the layer, and needs q, k and v no longer when it
  // returns; the message may be queued for want of room (Lanes::unsent). If the node cannot be
  // reached it is lost. REQUIRES: there are decode rows, and the node is not lost.
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

}  // namespace lamina
