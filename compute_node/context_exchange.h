// The data paths between compute nodes. A batch's context (step_context.h) goes from the node that
// ran a slice to the node that runs the next one, while memory nodes compute attention for it.
// Nodes that run a slice together send each other their partial sums (all_reduce.h).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "transport/ladder.h"
#include "wire/lanes.h"
#include "wire/session_messages.h"
#include "wire/step_messages.h"

namespace lamina {

struct ContextExchangeOptions {
  uint64_t epoch = 0;
  std::string session_token;                // to show to the other nodes, and to demand of them
  Switch payload_checksum = Switch::kAuto;  // see NeedsPayloadChecksum
  NodeId self;
  int num_batches = 1;
  // Payload of the largest context and of the largest partial sum (0 if there are none). The areas
  // in the windows follow from them, so they must be the same on all nodes.
  size_t payload_bytes = 0;
  size_t sum_bytes = 0;
  Clock::duration peer_timeout = std::chrono::seconds(10);
};

// Messages to and from each of the other compute nodes. The first node that is lost is kept in
// lost(); the owner looks at it and then ends its steps. Thread: one owner.
class ContextExchange {
 public:
  // Connects to the nodes before self in `nodes`, then waits for those behind it to connect, all
  // before `deadline`. kInvalidArgument if self is not among the nodes; other errors name the node
  // that is missing. REQUIRES: the ladder listens.
  static Result<std::unique_ptr<ContextExchange>> Join(const ContextExchangeOptions& options,
                                                       std::shared_ptr<Ladder> ladder,
                                                       std::span<const ComputeNodeAddress> nodes,
                                                       Deadline deadline);

  int num_nodes() const { return static_cast<int>(peers_.size()); }
  // Nodes are named by their index in Join's `nodes`; this is the index of this node.
  int self() const { return self_; }
  NodeId node(int index) const { return peers_[static_cast<size_t>(index)].address.node; }

  // Sends a batch's context or partial sum: the caller fills the payload, then posts it. Post waits
  // for room, at most for the peer timeout; if it fails, `to` is lost. `what` is the
  // MessageHeader::layer of the kind. REQUIRES: `to` has taken the last message of this batch and
  // kind; for partial sums, the one before the last.
  std::span<std::byte> payload(int to, int batch, MessageKind kind = MessageKind::kContext);
  Status Post(int to, int batch, StepId step, int what, size_t num_rows, size_t payload_bytes,
              MessageKind kind = MessageKind::kContext);

  // Takes what has come, and sends the other nodes a sign of life now and then. REQUIRES: while a
  // step is under way it is called at least every sign_interval(), except while a slice runs.
  void Poll();
  Clock::duration sign_interval() const { return options_.peer_timeout / kSignsPerTimeout; }

  // For a caller that has waited for `from` since `since`: the node is lost if nothing at all, not
  // even a sign of life, has come from it for the peer timeout. Then it hangs, or the way between
  // the two is cut.
  void LoseIfSilent(int from, TimePoint since);
  // Whether a message of this batch and kind is here that was not taken yet.
  bool arrived(int from, int batch, MessageKind kind = MessageKind::kContext) const {
    return peers_[static_cast<size_t>(from)].lanes->arrived(kind, static_cast<uint32_t>(batch));
  }

  // Takes the oldest message that has arrived and returns its payload, which is borrowed until the
  // next message can come into the same area. If the message is damaged, or is not the one about
  // `what` of this step with `num_rows` rows, the node is lost and kPeerLost is returned.
  // REQUIRES: arrived(from, batch, kind).
  Result<std::span<const std::byte>> Take(int from, int batch, StepId step, int what,
                                          size_t num_rows,
                                          MessageKind kind = MessageKind::kContext);

  // Marks the node as lost, because it is gone or its bytes cannot be trusted. Returns the error.
  Status Lose(int from, const std::string& why);

  // The first node that was lost, and why. No step can go on after that.
  const std::optional<LostNode>& lost() const { return lost_; }

  // The number of notifications that came twice since the last call.
  int64_t TakeStale();

  // How the nodes before this one in the list are reached.
  std::vector<DataPath> paths() const;

 private:
  // Several, so that some may be late on a busy machine.
  static constexpr int kSignsPerTimeout = 5;

  struct Peer {
    ComputeNodeAddress address;
    // Null for this node itself, and for a node that has not connected yet.
    std::unique_ptr<Lanes> lanes;
    DataPath path;
    TimePoint heard{};      // when something came last
    TimePoint next_sign{};  // when it needs a sign of life from this node
  };

  ContextExchange(const ContextExchangeOptions& options, std::shared_ptr<Ladder> ladder)
      : options_(options),
        ladder_(std::move(ladder)),
        lanes_(ContextLanes(options.num_batches, options.payload_bytes, options.sum_bytes)) {}

  Status Connect(Peer& peer, Deadline deadline);
  Status AcceptOthers(Deadline deadline);
  Status Use(Peer& peer, Path path);
  void PollPeer(int from);
  void ShowLife(int to);

  const ContextExchangeOptions options_;
  const std::shared_ptr<Ladder> ladder_;
  const std::vector<Lane> lanes_;  // to and from each of the others
  int self_ = -1;
  std::vector<Peer> peers_;  // same indices as Join's `nodes`
  std::optional<LostNode> lost_;
};

}  // namespace lamina
