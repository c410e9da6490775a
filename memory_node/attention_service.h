// What a memory node does in a step, without any I/O: keeps the KV tables as the manager orders,
// stores pushed K and V, and answers attention messages. One per session with a manager.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "memory_node/kv_device.h"
#include "memory_node/service_times.h"
#include "memory_node/token_positions.h"
#include "wire/control.pb.h"
#include "wire/wire_format.h"

namespace lamina {

// What becomes of q k^T, besides the softmax.
struct ScoreRules {
  float scale = 0;
  float soft_cap = 0;  // as AttentionShape's
  // By layer: the tokens that a row attends to, itself among them, 0: all; empty: all in every
  // layer.
  std::vector<int64_t> windows = {};
};

// Thread: one owner.
class AttentionService {
 public:
  AttentionService(const WireShape& wire, const ScoreRules& rules, uint64_t epoch,
                   std::unique_ptr<KvDevice> store);

  // What the device is asked ahead with, once the compute node has joined it and Use was called.
  // Errors as KvDevice::MakeAheadAttention.
  Result<std::unique_ptr<AheadAttention>> MakeAheadAttention() {
    return store_->MakeAheadAttention(attention_, wire_);
  }

  // From here on steps are not decoded by messages: Apply asks for them, or Push, once all K and V
  // that a step reads have come. REQUIRES: no order was applied; of MakeAheadAttention, joined.
  void Use(std::unique_ptr<AheadAttention> ahead) { ahead_ = std::move(ahead); }
  AheadAttention* ahead() const { return ahead_.get(); }  // null: none is used

  // Applies an order: releases, new slots; its rows become known for the messages of its step. An
  // order that contradicts the tables is refused as a whole for the sequence concerned: that
  // sequence is forgotten, and messages about it get an error.
  void Apply(const control::MemoryOrder& order);

  // The newest step whose order is here. Messages of later steps have to wait.
  StepId newest_step() const { return newest_step_; }

  // Computes a decode message and writes the whole reply (header and payload, with its checksum if
  // so asked) to `reply`, of WireShape::compute_window_bytes(). Returns its size. Failures are
  // answered in the reply, with a sentence: in its status if they concern the whole message or all
  // its rows, else as FailedRows. `number`: of the reply.
  size_t Decode(const ReceivedMessage& message, uint32_t number, std::span<std::byte> reply,
                bool payload_checksum);

  // The same for a decode message in two parts (WireShape::overlap). Begin attends over the tokens
  // that are stored already, for most rows; End stores k and v, completes those rows, hands their
  // outputs to `post_early`, which may put them on their way (and says whether it did), and then
  // attends for the rest. `queries` and `reply` stay as they are in between. Not batch-invariant:
  // the rows that are begun sum in another order than the rest, and how many these are depends on
  // the rows of the message. So last bits depend on the neighbours.
  struct Begun {
    ReceivedMessage queries;
    // That were begun: their output and log-sum-exp over stored tokens stand in the reply.
    size_t num_rows = 0;
    // Of the reply's payload that were posted; the rest is the caller's to post.
    size_t early_bytes = 0;
    int64_t attended_ns = 0;
    Status status;
    FailedRows failed;
  };
  using PostEarly = std::function<bool(std::span<const std::byte> outputs)>;
  Begun Begin(const ReceivedMessage& queries, std::span<std::byte> reply);
  size_t End(Begun& begun, const ReceivedMessage& keys_values, uint32_t number,
             std::span<std::byte> reply, bool payload_checksum, const PostEarly& post_early);

  // Stores a push message. kNotFound: all its rows were late or of unknown sequences (dropped).
  // kCorrupt: it contradicts the tables.
  Status Push(const ReceivedMessage& message);

  control::Stats stats() const;
  void CountStale() { ++stale_messages_; }
  bool IsStale(const MessageHeader& header) const;
  ServiceTimes& times() { return times_; }

 private:
  struct Row {
    SequenceId sequence;
    int64_t num_stored = 0;  // tokens before this one here
    int64_t num_before = 0;  // of those, before the step: its sequence may have several rows
    bool stores = false;     // its token gets a slot here
    int64_t position = 0;    // in its sequence
  };
  struct NewTokens {
    SequenceId sequence;
    int64_t num_stored = 0;  // tokens before them here
    std::span<const TokenSlot> slots;
    int64_t first_position = 0;  // in the sequence
    enum class Kv { kComes, kMadeUp, kShared } kv = Kv::kComes;
  };
  struct StepRows {
    uint32_t batch = 0;
    std::vector<Row> decode;
    std::vector<Row> prefill;  // the tokens of all chunks in a row
    bool under_way = false;    // times_ counts it
    int64_t rows_to_come = 0;  // of prefill, in all layers; with ahead_
  };

  void Append(const NewTokens& tokens, StepId step);
  Result<std::span<const TokenSlot>> Attended(const MessageHeader& header, const Row& row,
                                              int64_t num_tokens) const;
  void ForgetBefore(StepId step);  // steps of its batch
  void AskAhead();
  bool AskAhead(StepId id);
  Result<AheadStep> CollectAhead(const StepRows& step, StepId id);
  std::span<const TokenSlot> InWindow(int64_t window, const Row& row,
                                      std::span<const TokenSlot> slots) const;
  void EndStep(StepRows& step);
  Result<std::span<const Row>> RowsOf(const MessageHeader& header, bool prefill) const;
  // Where a row's goes, behind all outputs.
  float* Lse(const MessageHeader& header, size_t row, std::byte* out) const;
  Status AttendStored(Begun& begun, std::byte* out);
  Status AttendRest(Begun& begun, const ReceivedMessage& keys_values, std::byte* out,
                    const PostEarly& post_early);
  struct Outcome {
    const MessageHeader& asked;
    Status status;  // of the whole message
    const FailedRows& failed;
    int64_t attended_before_ns = 0;
  };
  size_t Answer(Outcome outcome, uint32_t number, std::span<std::byte> reply,
                bool payload_checksum);
  Status Attend(const ReceivedMessage& message, std::span<const Row> rows, std::byte* out,
                FailedRows& failed);
  Result<std::span<const TokenSlot>> Store(const MessageHeader& header, const Row& row,
                                           const std::byte* k, const std::byte* v);
  void Fail(const MessageHeader& header, size_t row, const Status& why, std::byte* out,
            FailedRows& failed) const;

  const WireShape wire_;
  const AttentionShape attention_;
  const std::vector<int64_t> windows_;
  const uint64_t epoch_;
  const std::unique_ptr<KvDevice> store_;
  std::unique_ptr<AheadAttention> ahead_;  // null: messages ask
  std::vector<StepId> to_ask_;             // it: steps that wait for K and V to come
  TokenPositions positions_;               // if there are windows
  std::map<StepId, StepRows> steps_;       // a few: those whose messages may still come
  StepId newest_step_;
  ServiceTimes times_;
  std::vector<KvQuery> queries_, rest_;  // scratch
  int64_t computed_rows_ = 0;
  int64_t attention_us_ = 0;
  int64_t attention_messages_ = 0;
  int64_t attended_tokens_ = 0;
  int64_t stale_messages_ = 0;
};

}  // namespace lamina
