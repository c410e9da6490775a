// The attention of one step in a cluster with memory nodes. Decode rows get it from the memory
// nodes that hold their KV, each by its decode path; prefill rows are attended to here, and their K
// and V are pushed to the memory nodes layer by layer.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "compute_node/decode_by_messages.h"
#include "compute_node/decode_path.h"

namespace lamina {

// One batch's steps, one after the other. Borrows the session. Thread: one owner.
class RemoteStep final : public AttentionStep, public StepTransfer {
 public:
  // REQUIRES: all memory nodes of the session are connected.
  RemoteStep(RemoteSession& session, uint32_t batch);

  // Begins the batch's next step.
  void Begin(const AttentionRows& rows);

  void StartQueries(int layer, const float* q, NodeId taker) override;
  void Start(const AttentionValues& values) override;
  bool Finish() override;
  void End() override;
  const Failures& failures() override;
  std::span<const SequenceId> late() const override { return late_; }
  std::span<const SuspendedNode> suspended() const override { return suspended_; }
  AttentionTraffic traffic() const override { return state_.traffic; }
  StepTransfer* transfer() override { return this; }

  void StartFor(NodeId taker, const AttentionValues& values) override;
  std::span<const AskedNode> asked() const override { return asked_; }
  void Expect(int layer, float* out, std::span<const AskedNode> asked) override;
  bool Stored() override;
  void GoOnWithout(std::span<const SuspendedNode> nodes) override;

  // When somebody is late that is waited for now: for replies, for the end of pushes, or for room
  // to send something. max() while nothing is waited for.
  TimePoint patience_ends() const;
  // Whether a device has still to tell how a reply turned out.
  bool fetching() const;

 private:
  // The step's share on one memory node.
  struct Share {
    MemoryPeer& peer;
    std::unique_ptr<PeerRows> rows;  // paths refer to it
    std::unique_ptr<DecodePath> path = nullptr;
    DecodeByMessages* by_messages = nullptr;  // the path, if it is one by messages
    size_t num_unpushed = 0;  // prefill rows with K and V of the layer still to push
    bool failed = false;      // the peer is lost, and its rows have failed
    bool late = false;        // the peer was suspended: the step goes on without its rows

    bool pushes() const {
      return !peer.lost() && !late && !rows->prefill().empty() && peer.pushing();
    }
  };

  bool has_sinks() const { return !session_.options.layers.sinks.empty(); }
  void AddRow(int row, NodeId node);
  void BeginLayer(const AttentionValues& values, NodeId taker);
  void Send();
  // Whether something for the share's node has not left. Other steps' messages to it count too, if
  // the step has rows there.
  static bool Unsent(const Share& share);
  // The step goes on without the rows of the share, whose peer is suspended here or elsewhere.
  void LeaveOut(Share& share);
  // The same for all such shares; before a layer's first message is sent.
  void LeaveOutSuspended();
  // Whether `what` need not be waited for any longer, which is waited for since `since`: the share
  // is left out, or its peer is lost.
  bool GivesUpOn(Share& share, TimePoint now, TimePoint since, const char* what);
  // Sends what has not left, as far as there is room, and returns whether everything has left.
  // Nodes that take nothing for too long are given up on, and what was for them counts as gone.
  // `since` is when this wait began, or the one that follows it; as long as something leaves it
  // begins anew.
  bool SendRest(TimePoint& since);
  // Pushes K and V of prefill rows, as long as a push slot is free. Returns whether it did.
  bool PushPrefill(Share& share);
  void PushRows(Share& share, uint32_t slot, size_t count);
  void AttendPrefill();
  // Fails the rows of memory nodes that were lost since the last call.
  void FailRowsOfLost();

  RemoteSession& session_;
  RemoteStepState state_;
  size_t first_prefill_ = 0;      // rows[first_prefill_..] are prefill
  bool sent_queries_ = false;     // q of the layer has been sent, k and v have not
  bool unsent_ = false;           // SendRest has found something that had not left
  std::vector<Share> shares_;     // same indices as the session's peers
  std::vector<AskedNode> asked_;  // in the last StartFor
  std::vector<SequenceId> late_;
  std::vector<SuspendedNode> suspended_;
  TimePoint waits_since_ = TimePoint::max(), stores_since_ = TimePoint::max();
  // When the first memory node was asked, which is before waits_since_ if another compute node
  // asked.
  TimePoint asked_since_{};
};

}  // namespace lamina
