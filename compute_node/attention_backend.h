// How a compute node gets the attention of a step's rows: from memory nodes over the wire
// (remote_attention.h), or from a KV cache of its own (local_attention.h). The step runner does not
// know which.
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

namespace lamina {

// One row of a step as attention sees it: the token at `position` of `sequence`.
struct AttentionWork {
  SequenceId sequence;
  NodeId node;  // whose slab gets its KV
  int64_t position = 0;
  TokenSlot slot = 0;  // in that slab
  // Attention over KV that this node computed itself in this prefill.
  bool prefill = false;
  // Of its sequence's prefill: afterwards this node forgets the KV.
  bool last_chunk = false;
  std::vector<NodeId> also_on = {};  // decode: other nodes that hold tokens of the sequence
};

// What failed in a step, by sequence; the first reason stays.
using Failures = std::map<SequenceId, Status>;

// A memory node, or another compute node, that was found dead in this step.
struct LostNode {
  NodeId node;
  std::string message;
};

// A memory node that will answer.
struct AskedNode {
  NodeId node;
  int64_t posted_ns = 0;     // when it was asked, as StepTrace::Now
  bool on_our_clock = true;  // posted_ns
};

// Calls per step: BeginStep, then for each layer Start and Finish until that is true, then EndStep.
// Steps of different batches may be interleaved in any way. Thread: one owner.
class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;

  // Where times go; none: nowhere. Borrowed. REQUIRES: no step is under way.
  void TraceTo(StepTrace* trace) { trace_ = trace; }

  // Rows [0, rows.size()) of the step; decode rows stand before prefill rows. `rows` is borrowed
  // until EndStep. Rows of sequences that fail are skipped from then on; their output is undefined.
  virtual void BeginStep(int batch, StepId step, std::span<const AttentionWork> rows) = 0;

  // q: [rows, num_heads, head_dim], k, v: [rows, num_kv_heads, head_dim], out: [rows, num_heads,
  // head_dim]; fp32. q, k and v are free again when it returns, out is borrowed until Finish is
  // true.
  virtual void Start(int batch, int layer, const float* q, const float* k, const float* v,
                     float* out) = 0;

  // Whether it has a use for q before k and v are there. Then StartQueries may come before a
  // layer's Start or StartFor, whose q and taker (0: none) must be the same.
  virtual bool takes_queries_first() const { return false; }
  virtual void StartQueries(NodeId /*taker*/, int /*batch*/, int /*layer*/, const float* /*q*/) {}

  // Takes what has come, without waiting. True when `out` is complete for every row that has not
  // failed; that is within the peer timeout.
  virtual bool Finish(int batch) = 0;

  // Several compute nodes: as Start, but the compute node `taker` runs the next slice. The outputs
  // of decode rows go there; those of prefill rows are in `out` when it returns, and their KV is
  // stored. Returns the memory nodes that will answer `taker`, borrowed until the next call. No
  // Finish follows. REQUIRES: memory nodes hold the KV.
  virtual std::span<const AskedNode> StartFor(NodeId /*taker*/, int /*batch*/, int /*layer*/,
                                              const float* /*q*/, const float* /*k*/,
                                              const float* /*v*/, float* /*out*/) {
    std::abort();
  }

  // The other end of it: the answers of `asked` will come here. The rows are those of BeginStep;
  // out as in Start, with those of prefill rows filled in. Finish follows.
  virtual void Expect(int /*batch*/, int /*layer*/, float* /*out*/,
                      std::span<const AskedNode> /*asked*/) {
    std::abort();
  }

  // Several compute nodes: until memory nodes have stored what the batch's step pushed, at most for
  // the peer timeout. Then another compute node may go on with its sequences.
  virtual void AwaitPushes(int /*batch*/) {}

  virtual void EndStep(int batch) = 0;

  // Takes what has come for any batch, as Finish does for its own.
  virtual void Poll() {}

  // Until something came that Finish may want, one of `fds` is readable, or some time has passed:
  // at most until `latest`.
  virtual void Sleep(std::span<const int> fds, Deadline latest) = 0;

  // Called again and again, at least every `interval`, while one of these calls waits. REQUIRES: no
  // step is under way.
  void WhileWaiting(Clock::duration interval, std::function<void()> work) {
    waiting_interval_ = interval;
    while_waiting_ = std::move(work);
  }

  // Tokens whose K and V are made up: KvStore::AppendDummy. Nothing to do here where memory nodes
  // hold the KV.
  virtual Status AppendDummy(SequenceId /*sequence*/, int64_t /*position*/,
                             std::span<const TokenSlot> /*slots*/, StepId /*step*/) {
    return OkStatus();
  }

  // A sequence starts with slots that hold its first tokens' K and V already: KvStore::Share.
  // Likewise.
  virtual Status Share(SequenceId /*sequence*/, std::span<const TokenSlot> /*slots*/,
                       StepId /*step*/) {
    return OkStatus();
  }

  // The sequence is over or preempted; unknown ones are ignored.
  virtual void Release(SequenceId sequence) = 0;

  // Nobody wants anything of it any more: what a device still waits for it need not.
  virtual void GiveUp() {}

  virtual const Failures& failures(int batch) const = 0;  // of the batch's current step
  virtual std::vector<LostNode> TakeLostNodes() { return {}; }

  struct Traffic {
    // From when attention is asked for, here or by another compute node on this host, to Finish.
    int64_t wait_us = 0;
    int64_t sent_bytes = 0, received_bytes = 0;
    int64_t stale_messages = 0;  // dropped
  };
  virtual Traffic traffic(int /*batch*/) const { return {}; }  // of the batch's current step

  // How each memory node is reached.
  struct ChosenPath {
    NodeId node;
    std::string fabric;   // "shm"
    std::string refused;  // what was tried or missing before, with the reasons; "" if nothing was
    std::string through;  // as Endpoint::through
  };
  virtual std::vector<ChosenPath> paths() const { return {}; }

 protected:
  StepTrace* trace_ = nullptr;
  std::function<void()> while_waiting_;  // may be null
  Clock::duration waiting_interval_{};   // if it is not
};

}  // namespace lamina
