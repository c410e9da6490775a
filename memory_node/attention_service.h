// What a memory node does in a step, without any I/O: it keeps the KV tables as the manager orders,
// stores the K and V that compute nodes push, and answers decode messages with attention. There is
// one service per session with a manager.
//
// Use: Apply for each order. A message that is early by steps() has to wait for its order, and one
// that is stale must be dropped; those that are due go to Push, to Decode, or, with overlap, to
// Begin and End.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "memory_node/kv_device.h"
#include "memory_node/ordered_steps.h"
#include "memory_node/sequence_slots.h"
#include "memory_node/service_times.h"
#include "memory_node/token_positions.h"
#include "wire/session_messages.h"
#include "wire/step_messages.h"
#include "wire/wire_format.h"

namespace lamina {

// How attention scores are formed from q k^T, before the softmax.
struct ScoreRules {
  float scale = 0;
  // Every scaled score s becomes soft_cap * tanh(s / soft_cap); 0: scores stay as they are.
  float soft_cap = 0;
  // [layers]: how many tokens a row attends to, itself included; 0: all. Empty: all in every layer.
  std::vector<AttentionWindow> windows = {};
};

// What a service has of KV, and what outlives it.
struct KvState {
  std::unique_ptr<KvDevice> device;  // with the tables and their K and V
  TokenPositions positions = {};     // of the tokens in them, if there are windows
  ScatteredSequences scattered = {};
  // Where the device was asked ahead: of each sequence, how many tokens were here before its last
  // step. Tokens of that one count as written, and may not have come.
  std::unordered_map<SequenceId, int64_t> before_last_step = {};
  uint64_t manager = 0;  // ConfigureMemory::manager_id of who numbered the sequences; 0: nobody
  uint64_t content = 0;  // ConfigureMemory::kv_content
};

// Owns the KV. Thread: one owner.
class AttentionService {
 public:
  // Messages have the given shape and epoch.
  AttentionService(const WireShape& wire, const ScoreRules& rules, uint64_t epoch, KvState kv);

  // The KV as the last orders and messages left it. The service is of no use any more.
  KvState TakeKv();

  // See SequenceSlots::Keep. REQUIRES: no order was applied yet.
  std::vector<SequenceId> Keep(std::span<const HeldSequence> held) {
    before_last_step_.clear();
    return slots_.Keep(held);
  }

  // See SequenceSlots::Left; without tokens that may not have come.
  std::vector<LeftSequence> Left() const;

  // Makes the object by which the device is asked for attention before there are queries. The
  // caller lets a compute node join it and then gives it to Use. kUnimplemented, saying why, if the
  // device cannot do this; other errors if it has no memory left for it.
  Result<std::unique_ptr<AheadAttention>> MakeAheadAttention() {
    return device_->MakeAheadAttention(attention_, wire_);
  }

  // From here on the device takes decode messages itself, and Decode, Begin and End must not be
  // called. Apply asks the device for each step or, if K and V that the step reads are still to
  // come, the Push that brings the last of them does. REQUIRES: no order was applied yet; `ahead`
  // is from MakeAheadAttention, and a compute node has joined it.
  void Use(std::unique_ptr<AheadAttention> ahead);
  // What Use was given, or null.
  AheadAttention* ahead() const { return ahead_.get(); }

  // Applies an order: releases sequences and enters new slots (SequenceSlots::Apply), and remembers
  // the rows, which the messages of the step refer to. An order for a batch that does not exist, or
  // with more decode rows than WireShape::max_rows, is logged and ignored.
  void Apply(const MemoryOrder& order);

  // The steps with an order, which say whether a message is early, due or stale.
  const OrderedSteps& steps() const { return steps_; }

  // A reply whose payload was written: what it says in its header, except what the connection fills
  // in (Lanes::Post).
  struct Reply {
    MessageHeader header;
    size_t payload_bytes = 0;
  };
  // Carries out a decode message and writes the payload of the reply to `out`. Failures are
  // answered in the reply, with a message: in its status if they concern all rows, else as
  // FailedRows. REQUIRES: `out` has the payload of WireShape::reply_area_bytes().
  Reply Decode(const ReceivedMessage& message, std::span<std::byte> out);

  // Begin and End do the same for a decode message in two parts (WireShape::overlap). Begin, called
  // with q, attends over the tokens that are stored already, for most rows. End, called with k and
  // v, stores these, completes the rows that were begun and offers their outputs to `post_early`;
  // then it attends for the other rows. The payload of `queries` and the reply must not change in
  // between.
  //
  // This is not batch-invariant: rows that were begun are summed in another order than the others,
  // and how many are begun depends on the number of rows in the message. So the last bits of an
  // output depend on the rows beside it.
  struct Begun {
    ReceivedMessage queries;
    // The first num_rows rows were begun: the reply holds their output and log-sum-exp over the
    // tokens that were stored before.
    size_t num_rows = 0;
    // How much of the reply's payload post_early has posted. The caller posts the rest.
    size_t early_bytes = 0;
    int64_t attended_ns = 0;  // how long Begin took
    Status status;            // of the whole message
    FailedRows failed;
  };
  // Posts the outputs, the first bytes of the reply's payload, or does not; returns whether it did.
  using PostEarly = std::function<bool(size_t bytes)>;
  Begun Begin(const ReceivedMessage& queries, std::span<std::byte> out);
  Reply End(Begun& begun, const ReceivedMessage& keys_values, std::span<std::byte> out,
            const PostEarly& post_early);

  // Stores the K and V of a push message. kNotFound if there is no order for its step, or if rows
  // were dropped because they are late or their sequences are unknown; kCorrupt if the message or
  // one of its rows contradicts the order or the tables. Rows that are in order are stored anyway.
  Status Push(const ReceivedMessage& message);

  // Null: always as many have a place in memory.
  const ElasticLayers* layers() const { return cache_.elastic_layers(); }

  MemoryStats stats() const;
  // Counts a message that was dropped.
  void CountStale() { ++stale_messages_; }
  ServiceTimes& times() { return times_; }

 private:
  // In all of these `out` is the payload of the reply that is being written.

  // Asks the device for those of to_ask_ for which everything has come.
  void AskAhead();
  // Asks the device for a step, or to refuse it. False if pushes have to come first.
  bool AskAhead(StepId id);
  Result<AheadStep> CollectAhead(const OrderedSteps::Step& step, StepId id);
  // Where the row's log-sum-exps go: behind all outputs.
  float* Lse(const MessageHeader& header, size_t row, std::byte* out) const;
  // Errors as Push returns them.
  Status StorePushed(const ReceivedMessage& message, std::span<const OrderedRow> rows);
  Status AttendStored(Begun& begun, std::byte* out);
  Status AttendRest(Begun& begun, const ReceivedMessage& keys_values, std::byte* out,
                    const PostEarly& post_early);
  struct Outcome {
    const MessageHeader& asked;
    Status status;  // of the whole message
    const FailedRows& failed;
    int64_t attended_before_ns = 0;  // how long the message's first part took
  };
  // Completes the payload, in which the outputs are already.
  Reply Answer(Outcome outcome, std::span<std::byte> out);
  Status Attend(const ReceivedMessage& message, std::span<const OrderedRow> rows, std::byte* out,
                FailedRows& failed);
  // Stores k and v of the row's token if it gets a slot here. Returns the slots that the row
  // attends to.
  Result<std::span<const TokenSlot>> Store(const MessageHeader& header, const OrderedRow& row,
                                           const std::byte* k, const std::byte* v);
  // Notes that a row has failed, and gives it an output that adds nothing when it is merged.
  void Fail(const MessageHeader& header, size_t row, const Status& why, std::byte* out,
            FailedRows& failed) const;

  const WireShape wire_;
  const AttentionShape attention_;
  std::unique_ptr<KvDevice> device_;
  KvCache& cache_;                         // the device's
  std::unique_ptr<AheadAttention> ahead_;  // null: decode messages come to this host
  std::vector<StepId> to_ask_;             // steps that wait for K and V before ahead_ is asked
  SequenceSlots slots_;                    // borrows cache_
  std::unordered_map<SequenceId, int64_t> before_last_step_;  // as KvState
  ServiceTimes times_;
  OrderedSteps steps_;                   // borrows times_
  std::vector<KvQuery> queries_, rest_;  // scratch
  int64_t computed_rows_ = 0;
  int64_t attention_us_ = 0;
  int64_t attention_messages_ = 0;
  int64_t attended_tokens_ = 0;
  int64_t stale_messages_ = 0;
};

}  // namespace lamina
