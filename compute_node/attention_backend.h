// The interface by which a compute node gets the attention of a step's rows: from memory nodes over
// the wire (remote_attention.h), or from a KV cache of its own (local_attention.h). The step runner
// does not know which.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "compute_node/step_trace.h"
#include "kernels/token_slab.h"
#include "wire/session_messages.h"
#include "wire/step_messages.h"

namespace lamina {

// One row of a step as attention sees it: the token at `position` of `sequence`.
struct AttentionWork {
  SequenceId sequence;
  NodeId node;  // the node whose slab gets the token's KV
  int64_t position = 0;
  TokenSlot slot = 0;  // in that slab
  // Whether this node has all earlier KV of the sequence and attends to it itself.
  bool prefill = false;
  // Whether the row belongs to its prefill's last chunk, after which this node forgets the KV.
  bool last_chunk = false;
  std::vector<NodeId> also_on = {};  // decode: other nodes that hold tokens of the sequence
};

// What failed in a step, by sequence; the first reason is kept.
using Failures = std::map<SequenceId, Status>;

// A memory node that was asked for attention and will reply.
struct AskedNode {
  NodeId node;
  int64_t posted_ns = 0;     // when it was asked; 0 if that was not timed
  bool on_our_clock = true;  // whether posted_ns is by this node's clock
};

// Calls per step: BeginStep; for each layer Start, then Finish until it returns true; EndStep.
// Steps of different batches may be interleaved in any way.
//
// With several compute nodes a step may move between them. Then the node that runs a slice calls
// StartFor, and the node that runs the next slice calls Expect and Finish.
//
// Thread: one owner.
class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;

  // Sets where times are recorded, nullptr for nowhere. Borrowed. REQUIRES: no step is under way.
  void TraceTo(StepTrace* trace) { trace_ = trace; }

  // Begins a step of these rows, decode rows before prefill rows. `rows` is borrowed until EndStep.
  // Rows of sequences that fail are skipped from then on; their output is undefined.
  virtual void BeginStep(int batch, StepId step, std::span<const AttentionWork> rows) = 0;

  // Asks for the attention of a layer. q: [rows, num_heads, head_dim], k, v: [rows, num_kv_heads,
  // head_dim], out: [rows, num_heads, head_dim]; fp32. q, k and v may be overwritten when it
  // returns; out is borrowed until Finish returns true.
  virtual void Start(int batch, int layer, const float* q, const float* k, const float* v,
                     float* out) = 0;

  // Whether q can be sent before k and v are computed. If true, StartQueries may be called before a
  // layer's Start (then with taker 0) or StartFor; q and taker must be the same in both calls.
  virtual bool takes_queries_first() const { return false; }
  virtual void StartQueries(NodeId /*taker*/, int /*batch*/, int /*layer*/, const float* /*q*/) {}

  // Takes what has come, without waiting. Returns true when `out` is complete for every row that
  // has not failed. It does so within the peer timeout: rows that wait for a slower node fail.
  virtual bool Finish(int batch) = 0;

  // Start for a layer after which another compute node, `taker`, runs the next slice. The outputs
  // of decode rows go there; those of prefill rows are in `out` when it returns, and their KV is
  // stored. Returns the memory nodes that will answer `taker`, borrowed until the next call. No
  // Finish follows. REQUIRES: memory nodes hold the KV.
  virtual std::span<const AskedNode> StartFor(NodeId /*taker*/, int /*batch*/, int /*layer*/,
                                              const float* /*q*/, const float* /*k*/,
                                              const float* /*v*/, float* /*out*/) {
    std::abort();
  }

  // The counterpart of StartFor on the taker: the answers of `asked` will come here. `out` has the
  // shape of Start's, with the outputs of prefill rows filled in, and is borrowed until Finish
  // returns true. REQUIRES: BeginStep was called for the same rows.
  virtual void Expect(int /*batch*/, int /*layer*/, float* /*out*/,
                      std::span<const AskedNode> /*asked*/) {
    std::abort();
  }

  // Waits until the memory nodes have stored the K and V that the batch's step has pushed, at most
  // for the peer timeout per node. Needed before another compute node goes on with its sequences.
  virtual void AwaitPushes(int /*batch*/) {}

  virtual void EndStep(int batch) = 0;

  // Takes what has come for any batch, without waiting.
  virtual void Poll() {}

  // Sleeps until something has come that Finish may need, one of `fds` is readable, or some time
  // has passed, but never longer than until `latest`.
  virtual void Sleep(std::span<const int> fds, Deadline latest) = 0;

  // Sets `work` to be called again and again, at least every `interval`, while a call of this
  // object waits. REQUIRES: no step is under way.
  void WhileWaiting(Clock::duration interval, std::function<void()> work) {
    waiting_interval_ = interval;
    while_waiting_ = std::move(work);
  }

  // AppendDummy adds tokens with made-up K and V to a sequence. Share starts a sequence with slots
  // that already hold K and V of its first tokens. Both are for KV on this node and change nothing
  // where memory nodes hold the KV. Contract and errors: LocalKv in compute_device.h.
  virtual Status AppendDummy(SequenceId /*sequence*/, int64_t /*position*/,
                             std::span<const TokenSlot> /*slots*/, StepId /*step*/) {
    return OkStatus();
  }

  virtual Status Share(SequenceId /*sequence*/, std::span<const TokenSlot> /*slots*/,
                       StepId /*step*/) {
    return OkStatus();
  }

  // The sequence is over or preempted; unknown ones are ignored.
  virtual void Release(SequenceId sequence) = 0;

  // No result is needed any more: devices end their waits for memory nodes early. For shutting
  // down.
  virtual void GiveUp() {}

  // What has failed in the batch's present step.
  virtual const Failures& failures(int batch) const = 0;
  // The memory nodes that were lost since the last call.
  virtual std::vector<LostNode> TakeLostNodes() { return {}; }

  struct Traffic {
    // From the moment when attention was asked for, here or by another compute node on this host,
    // to the end of Finish.
    int64_t wait_us = 0;
    int64_t sent_bytes = 0, received_bytes = 0;
    int64_t stale_messages = 0;  // dropped notifications
  };
  // Of the batch's present step.
  virtual Traffic traffic(int /*batch*/) const { return {}; }

  // How each memory node is reached.
  virtual std::vector<DataPath> paths() const { return {}; }

 protected:
  StepTrace* trace_ = nullptr;
  std::function<void()> while_waiting_;  // may be null
  Clock::duration waiting_interval_{};   // for while_waiting_
};

}  // namespace lamina
