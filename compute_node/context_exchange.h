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

// What a message between compute nodes is about.
struct PassedMessage {
  MessageKind kind = MessageKind::kContext;  // or kPartialSum
  uint32_t batch = 0;
  StepId step;
  int subject = 0;  // MessageHeader::layer of the kind: a slice, or the value that is summed
  size_t num_rows = 0;
};

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

class JoiningExchange;

// Messages to and from each of the other compute nodes. The first node that is lost is kept in
// lost(); the owner looks at it and then ends its steps. Thread: one owner.
class ContextExchange {
 public:
  // Begins to join: connects to the nodes before self in `nodes`, and takes those behind it that
  // connect, until `deadline`. kInvalidArgument if self is not among the nodes or offers cannot be
  // read; other errors come from JoiningExchange::Poll. REQUIRES: the ladder listens.
  static Result<JoiningExchange> StartJoin(const ContextExchangeOptions& options,
                                           std::shared_ptr<Ladder> ladder,
                                           std::span<const ComputeNodeAddress> nodes,
                                           Deadline deadline);

  int num_nodes() const { return static_cast<int>(peers_.size()); }
  // Nodes are named by their index in StartJoin's `nodes`; this is the index of this node.
  int self() const { return self_; }
  NodeId node(int index) const { return peers_[static_cast<size_t>(index)].address.node; }

  // Sends a message: the caller fills the payload, then posts it. If there is no room, it is queued
  // and leaves with a later Poll. If Post fails, `to` is lost. REQUIRES: `to` has taken the last
  // message of this kind and batch; for partial sums, the one before the last.
  std::span<std::byte> payload(int to, MessageKind kind, uint32_t batch);
  Status Post(int to, const PassedMessage& message, size_t payload_bytes);

  // Whether a message is still queued, so that Poll must be called. False once a node is lost.
  bool unsent() const;

  // Takes what has come, sends what is queued, and gives the other nodes a sign of life now and
  // then. A node that has no room for the peer timeout is lost. REQUIRES: while a
  // step is under way it is called at least every sign_interval(), except while a slice runs.
  void Poll();
  Clock::duration sign_interval() const { return options_.peer_timeout / kSignsPerTimeout; }

  // For a caller that has waited for `from` since `since`: the node is lost if nothing at all, not
  // even a sign of life, has come from it for the peer timeout. Then it hangs, or the way between
  // the two is cut.
  void LoseIfSilent(int from, TimePoint since);
  // Whether a message of this kind and batch is here that was not taken yet.
  bool arrived(int from, MessageKind kind, uint32_t batch) const {
    return peers_[static_cast<size_t>(from)].lanes->arrived(kind, batch);
  }

  // Takes the oldest message of this kind and batch and returns its payload, which is borrowed
  // until the next message can come into the same area. If it is damaged, or is not about what
  // `expected` says, the node is lost and kPeerLost is returned. REQUIRES: arrived().
  Result<std::span<const std::byte>> Take(int from, const PassedMessage& expected);

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
    // Null for this node itself, and for a node that is not connected yet.
    std::unique_ptr<Lanes> lanes;
    DataPath path;
    TimePoint heard{};      // when something came last
    TimePoint next_sign{};  // when it needs a sign of life from this node
    // Since when messages to it have been waiting for room; max() while none does.
    TimePoint unsent_since = TimePoint::max();
  };

  ContextExchange(const ContextExchangeOptions& options, std::shared_ptr<Ladder> ladder)
      : options_(options),
        ladder_(std::move(ladder)),
        lanes_(ContextLanes(options.num_batches, options.payload_bytes, options.sum_bytes)) {}

  // The node behind this one that says this hello and is not connected yet; nullptr if there is
  // none, or the hello does not show this session's token.
  Peer* MissingPeer(const std::string& hello);
  // Takes nodes behind this one that have connected. An error is that of a node that was taken.
  Status AcceptPeers();
  Status Use(Peer& peer, Path path);
  void PollPeer(int from);
  // The node is lost if there is no room for messages to it for too long.
  void LoseIfFull(int to);
  void ShowLife(int to);

  const ContextExchangeOptions options_;
  const std::shared_ptr<Ladder> ladder_;
  const std::vector<Lane> lanes_;  // to and from each of the others
  int self_ = -1;
  std::vector<Peer> peers_;  // same indices as StartJoin's `nodes`
  std::optional<LostNode> lost_;

  friend class JoiningExchange;
};

// An exchange that other nodes are joining. Destroying it gives that up. Can be moved. Thread: one
// owner.
class JoiningExchange {
 public:
  // Goes on without waiting. Returns the exchange once all nodes are connected, kTryAgain until
  // then; other errors name the node that is missing or was lost. REQUIRES: every call before this
  // one returned kTryAgain.
  Result<std::unique_ptr<ContextExchange>> Poll();

  // When to call Poll again at the latest; Ladder::Sleep wakes the owner when it gets further
  // before that. REQUIRES: Poll returned kTryAgain.
  TimePoint wake_at() const;

 private:
  friend class ContextExchange;
  JoiningExchange(std::unique_ptr<ContextExchange> exchange, Deadline deadline)
      : exchange_(std::move(exchange)), deadline_(deadline) {}
  Status Connect(size_t index);

  std::unique_ptr<ContextExchange> exchange_;
  Deadline deadline_;
  // To the nodes before self, by index; null once it is connected.
  std::vector<std::unique_ptr<ConnectingPath>> connecting_;
};

}  // namespace lamina
