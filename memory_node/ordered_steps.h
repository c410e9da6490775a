// The steps whose orders have reached a memory node. Orders come from the manager and messages from
// compute nodes, so neither waits for the other: this says whether a message is early, due or
// stale, and which rows it is about. It has no tables, no KV and no I/O.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "memory_node/service_times.h"
#include "wire/step_messages.h"
#include "wire/wire_format.h"

namespace lamina {

// A row of a step: a token that decodes, or a token of a prompt.
struct OrderedRow {
  SequenceId sequence;
  int64_t num_stored = 0;  // tokens of the sequence on this node before this one
  // How many of these were here before the step. Fewer than num_stored if other rows of the step
  // are of the same sequence.
  int64_t num_before = 0;
  bool stores = false;   // whether its token gets a slot on this node
  int64_t position = 0;  // in its sequence
};

// Use: Add for each order. For each message that TimingOf calls due, ForgetBefore and RowsOf.
// Thread: one owner.
class OrderedSteps {
 public:
  // Messages must be of this epoch. Borrows `times`, which it tells when a step with decode rows
  // begins and when it ends: with FinishDecode, or when it is forgotten or ordered again.
  OrderedSteps(uint64_t epoch, ServiceTimes& times) : epoch_(epoch), times_(times) {}

  // From here on only pushes come to this host, while decode messages go elsewhere. So nothing
  // orders the two, and a step is kept until its prefill rows were pushed in all `num_layers`
  // layers. `times` is told of no step. REQUIRES: no order was added yet.
  void AwaitPushes(int num_layers) { num_pushed_layers_ = num_layers; }

  // Remembers the rows of an order. A further order for the same step replaces the first.
  void Add(const MemoryOrder& order);

  enum class Timing {
    kEarly,  // the message has to wait for its order
    kDue,    // the message's step is under way
    kStale   // the message is of another epoch, or its step is over or had no rows
  };
  Timing TimingOf(const MessageHeader& header) const;

  // The order's rows that a message is about: prefill rows for a push, decode rows for all other
  // kinds. kNotFound if there is no order for its step; kCorrupt if the message has other rows than
  // the order. The rows are valid until the step is over or ordered again.
  Result<std::span<const OrderedRow>> RowsOf(const MessageHeader& header) const;

  // To be called when a message of `step` is handled: forgets the earlier steps of its batch, whose
  // messages are stale from here on. Steps with rows that AwaitPushes waits for are kept.
  void ForgetBefore(StepId step);

  // Notes that the last decode message of the step was answered.
  void FinishDecode(StepId step);

  // Notes that `num_rows` prefill rows of one layer have come, whether they could be stored or not:
  // they do not come again.
  void CountPushed(StepId step, int64_t num_rows);

  // Whether nothing that AwaitPushes waits for is missing from the steps before `step`.
  bool AllPushedBefore(StepId step) const;

  struct Step {
    uint32_t batch = 0;
    std::vector<OrderedRow> decode;
    std::vector<OrderedRow> prefill;  // the tokens of all chunks, one after the other
    bool under_way = false;           // `times` counts the step
    // How many times a prefill row of a layer is still to be pushed; counted after AwaitPushes.
    int64_t rows_to_come = 0;
  };
  // Null if the step has no rows, has no order here, or is over. Valid until the step is over.
  const Step* Find(StepId step) const;

  // The newest step with an order; StepId{} before the first.
  StepId newest() const { return newest_; }
  uint64_t epoch() const { return epoch_; }

 private:
  void End(Step& step);

  const uint64_t epoch_;
  ServiceTimes& times_;
  int num_pushed_layers_ = 0;     // 0: decode messages come to this host
  std::map<StepId, Step> steps_;  // the few steps whose messages may still come
  StepId newest_;
};

}  // namespace lamina
