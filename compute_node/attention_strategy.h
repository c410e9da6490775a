// How a compute node gets the attention of a step's rows: from memory nodes over the wire
// (remote_attention.h), or from a KV cache of its own (local_attention.h). Whoever runs the step's
// slices knows only the interfaces in this file.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "compute_node/step_trace.h"
#include "kernels/kv_cache.h"
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

// A step as attention sees it: decode rows before prefill rows.
struct AttentionRows {
  uint32_t batch = 0;  // each batch has at most one step at a time
  StepId step;
  std::span<const AttentionWork> rows;
};

// The values of one layer's attention, [rows, width] fp32 in the compute device's memory.
struct AttentionValues {
  int layer = 0;
  const float* q = nullptr;  // [rows, num_heads, head_dim]
  const float* k = nullptr;  // [rows, num_kv_heads, head_dim]
  const float* v = nullptr;  // [rows, num_kv_heads, head_dim]
  float* out = nullptr;      // [rows, num_heads, head_dim]
};

// What failed in a step's attention, by sequence; the first reason is kept. Attention depends on
// nothing of a request but its KV, so the cause of all of these is FailureCause::kKvLost.
using Failures = std::map<SequenceId, Status>;

// A memory node that was asked for attention and will reply.
struct AskedNode {
  NodeId node;
  int64_t posted_ns = 0;     // when it was asked; 0 if that was not timed
  bool on_our_clock = true;  // whether posted_ns is by this node's clock
};

// What the attention of a step has cost so far.
struct AttentionTraffic {
  // From the moment when attention was asked for, here or by another compute node on this host, to
  // the end of Finish.
  int64_t wait_us = 0;
  int64_t sent_bytes = 0, received_bytes = 0;
  int64_t stale_messages = 0;  // dropped notifications
};

// What lets a step go on at another compute node. The node that runs a slice calls StartFor, and
// the node that runs the next slice calls Expect and then AttentionStep::Finish. Thread: one owner,
// that of the step.
class StepTransfer {
 public:
  virtual ~StepTransfer() = default;

  // Takes the place of AttentionStep::Start for a layer after which `taker`, another compute node,
  // runs the next slice. The outputs of decode rows go there; those of prefill rows are in
  // values.out when it returns. q, k and v are borrowed until Stored returns true. No Finish
  // follows.
  virtual void StartFor(NodeId taker, const AttentionValues& values) = 0;
  // The memory nodes that will answer the taker. Borrowed until the next StartFor.
  virtual std::span<const AskedNode> asked() const = 0;

  // The counterpart of StartFor on the taker: the answers of `asked` will come here. `out` has the
  // shape of AttentionValues::out, with the outputs of prefill rows filled in, and is borrowed
  // until Finish returns true.
  virtual void Expect(int layer, float* out, std::span<const AskedNode> asked) = 0;

  // Takes what has come, sends what StartFor found no room for, and returns whether all of it has
  // left and the memory nodes have stored the K and V that the step has pushed: before that no
  // other compute node can go on with its sequences, and q, k and v of StartFor are borrowed. For a
  // memory node that is late with that the same holds as in AttentionStep::Finish.
  virtual bool Stored() = 0;

  // The step has gone on without these memory nodes elsewhere, and goes on without them here: what
  // they were asked for is not waited for, and nothing more is asked of them. Comes behind Expect.
  virtual void GoOnWithout(std::span<const SuspendedNode> nodes) = 0;
};

// The attention of one step. For each layer Start, then Finish until it returns true; at the end
// End. Steps of different batches may be interleaved in any way. No call waits. Thread: one owner.
class AttentionStep {
 public:
  virtual ~AttentionStep() = default;

  // Sends q of a layer before k and v are computed. Start or StartFor of the layer follows, with
  // the same q. `taker` is that of StartFor, or 0. REQUIRES: Capabilities::queries_first.
  virtual void StartQueries(int layer, const float* q, NodeId taker) = 0;

  // Asks for the attention of a layer. The values are borrowed until Finish returns true: what
  // finds no room on the way to a memory node is sent by Finish.
  virtual void Start(const AttentionValues& values) = 0;

  // Takes what has come and sends what Start found no room for. Returns true when everything has
  // left and `out` is complete for every row that has not failed and is not late. A memory node
  // that has no room, or does not answer, for RemoteAttentionOptions::suspect_after is suspended,
  // and its rows are late; if it does not come round within the peer timeout it is lost.
  virtual bool Finish() = 0;

  // The step is over, or given up, whatever is under way. Failures and traffic can be read until
  // the batch's next step.
  virtual void End() = 0;

  // What has failed so far. Rows of these sequences are skipped; their output is undefined.
  virtual const Failures& failures() = 0;
  // Sequences with rows that get no attention in this step and have not failed, because a memory
  // node is suspended: see PeerState. Their output is undefined too. Borrowed until the next call.
  virtual std::span<const SequenceId> late() const = 0;
  // The memory nodes that the step goes on without, here or since other compute nodes ran it.
  // Borrowed until the next call.
  virtual std::span<const SuspendedNode> suspended() const = 0;
  virtual AttentionTraffic traffic() const = 0;

  // Null if the step cannot leave this node, which has the KV.
  virtual StepTransfer* transfer() = 0;
};

// Thread: one owner.
class AttentionStrategy {
 public:
  virtual ~AttentionStrategy() = default;

  struct Capabilities {
    // Whether AttentionStep::StartQueries may be called.
    bool queries_first = false;
    // The cache of this node in which all KV is kept, borrowed; null if memory nodes hold the KV.
    KvCache* own_kv = nullptr;
  };
  virtual Capabilities capabilities() const = 0;

  // Begins a step. The rows are borrowed until it ends; the step is this object's. REQUIRES: the
  // batch's previous step has ended.
  virtual AttentionStep& Begin(const AttentionRows& rows) = 0;

  // The sequence is over or preempted; unknown ones are ignored.
  virtual void Release(SequenceId sequence) = 0;

  // Takes what has come for any step, without waiting.
  virtual void Poll() = 0;

  // Sleeps until something has come that Finish may need, one of `fds` is readable, or some time
  // has passed, but never longer than until `latest`.
  virtual void Sleep(std::span<const int> fds, Deadline latest) = 0;

  // Sets where times are recorded. Borrowed. REQUIRES: no step is under way.
  virtual void TraceTo(StepTrace& trace) = 0;

  // No result is needed any more: devices end their waits for memory nodes early. For shutting
  // down.
  virtual void GiveUp() = 0;

  // The manager has lost a memory node: it counts as lost here too, as if its data path had broken.
  // Ignored if there is no such node or it is lost already.
  virtual void Lose(NodeId node, const std::string& why) = 0;

  // The memory nodes that are lost, without those of Lose. Every result names them until the
  // manager has lost them too: another step's may come first, and what has failed with a node would
  // be placed there once more.
  virtual std::vector<LostNode> LostNodes() const = 0;

  // What has become of suspended memory nodes, and which were suspended, since the last call, in
  // the order in which it happened.
  virtual std::vector<PeerState> TakePeerStates() = 0;
  // Whether a memory node is suspended: Poll has to be called though no step is under way.
  virtual bool suspends() const = 0;
  // When a memory node will be late, or lost, if nothing comes before.
  virtual TimePoint wake_at() const = 0;

  // How each memory node is reached.
  virtual std::vector<DataPath> paths() const = 0;
};

}  // namespace lamina
