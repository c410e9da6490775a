// The data paths between compute nodes: a batch's context goes from the one that ran a slice to the
// one that runs the next, while memory nodes compute attention for it. Nodes that run a slice
// together send each other their partial sums (all_reduce.h).
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
#include "compute_node/attention_backend.h"
#include "transport/ladder.h"
#include "wire/wire_format.h"

namespace lamina {

struct ContextPeerAddress {
  NodeId node;
  std::string name;
  std::string offers;  // of its Ladder
};

struct ContextExchangeOptions {
  uint64_t epoch = 0;
  std::string session_token;              // shown to the others, and asked of them
  std::string payload_checksum = "auto";  // NeedsPayloadChecksum
  NodeId self;
  int num_batches = 1;
  size_t payload_bytes = 0;  // of the largest context, alike on all nodes
  size_t sum_bytes = 0;      // of the largest partial sum, likewise; 0: there are none
  Clock::duration peer_timeout = std::chrono::seconds(10);
};

// Thread: one owner.
class ContextExchange {
 public:
  // Connects to the nodes that stand before self in `nodes`, then waits for those behind it; all
  // before `deadline`. The error names the one that is missing. kInvalidArgument: self is not among
  // them. REQUIRES: the ladder listens.
  static Result<std::unique_ptr<ContextExchange>> Join(const ContextExchangeOptions& options,
                                                       std::shared_ptr<Ladder> ladder,
                                                       std::span<const ContextPeerAddress> nodes,
                                                       Deadline deadline);

  int num_nodes() const { return static_cast<int>(peers_.size()); }
  int self() const { return self_; }  // index in `nodes`, as all indices here
  NodeId node(int index) const { return peers_[static_cast<size_t>(index)].address.node; }

  // A batch's context or partial sum: fill its payload, then post it. Waits for room at most for
  // the peer timeout; an error is kept in lost(). `what`: as MessageHeader::layer. REQUIRES: `to`
  // has taken the one before of this batch and kind, of partial sums the one before that.
  std::span<std::byte> payload(int to, int batch, MessageKind kind = MessageKind::kContext);
  Status Post(int to, int batch, StepId step, int what, size_t num_rows, size_t payload_bytes,
              MessageKind kind = MessageKind::kContext);

  // Takes what came, and tells the others now and then that this node lives. REQUIRES: who has a
  // step under way calls it at least every sign_interval(), or says nothing for the time that one
  // slice takes.
  void Poll();
  Clock::duration sign_interval() const { return options_.peer_timeout / kSignsPerTimeout; }

  // For one who has waited for something of `from` since then: it is lost if nothing came from it
  // for the peer timeout, no sign of life either. It hangs, or the way between the two is cut.
  void LoseIfSilent(int from, TimePoint since);
  bool arrived(int from, int batch, MessageKind kind = MessageKind::kContext) const {
    const Lane& lane = peers_[static_cast<size_t>(from)].lanes[LaneIndex(batch, kind)];
    return lane.received != lane.taken;
  }

  // The payload of the first that arrived, borrowed until the next one can come into its place;
  // kCorrupt unless it is the one for `what` of this step, of so many rows.
  Result<std::span<const std::byte>> Take(int from, int batch, StepId step, int what,
                                          size_t num_rows,
                                          MessageKind kind = MessageKind::kContext);

  // Bytes of `from` cannot be trusted, or it is gone. Returns the error.
  Status Lose(int from, const std::string& why);

  // The first of the others that is lost, and why; nothing can go on then.
  const std::optional<LostNode>& lost() const { return lost_; }

  int64_t TakeStale();  // notifications that came twice, since the last call

  // How nodes before this one are reached.
  std::vector<AttentionBackend::ChosenPath> paths() const;

 private:
  static constexpr int kSignsPerTimeout = 5;  // some may be late on a busy machine

  struct Lane {
    // Numbers of the last messages of one batch and kind.
    uint32_t sent = 0, received = 0, taken = 0;
  };
  struct Peer {
    ContextPeerAddress address;
    // Its window, as it is written here; null: it can be written itself.
    std::unique_ptr<Buffer> buffer;
    // After the buffer: it goes first; null: this node, or not here yet.
    std::unique_ptr<Endpoint> endpoint;
    bool payload_checksum = false;
    AttentionBackend::ChosenPath path;
    TimePoint heard{};      // when something came last
    TimePoint next_sign{};  // when it is to be told that this node lives
    std::array<Lane, 2 * kMaxBatches> lanes{};
  };

  ContextExchange(const ContextExchangeOptions& options, std::shared_ptr<Ladder> ladder)
      : options_(options), ladder_(std::move(ladder)) {}

  Status Connect(Peer& peer, Deadline deadline);
  Status AcceptOthers(Deadline deadline);
  Status Use(Peer& peer, Path path);
  static std::span<std::byte> Outgoing(const Peer& peer) {
    return peer.buffer == nullptr ? peer.endpoint->peer_window() : peer.buffer->bytes();
  }
  void PollPeer(int from);
  void ShowLife(int to);
  void TakeNotification(int from, uint32_t value);
  static size_t LaneIndex(int batch, MessageKind kind) {
    return static_cast<size_t>(kind == MessageKind::kPartialSum ? kMaxBatches + batch : batch);
  }
  // Messages that may wait.
  static uint32_t Depth(MessageKind kind) { return kind == MessageKind::kPartialSum ? 2 : 1; }
  struct Area {
    uint64_t offset = 0, bytes = 0;
  };
  Area AreaOf(int batch, MessageKind kind, uint32_t number) const;
  uint64_t context_area_bytes() const {
    return WireShape::Align(sizeof(MessageHeader) + options_.payload_bytes);
  }
  uint64_t sum_area_bytes() const {
    return options_.sum_bytes == 0 ? 0
                                   : WireShape::Align(sizeof(MessageHeader) + options_.sum_bytes);
  }
  uint64_t window_bytes() const {
    return (context_area_bytes() + 2 * sum_area_bytes()) *
           static_cast<uint64_t>(options_.num_batches);
  }

  const ContextExchangeOptions options_;
  const std::shared_ptr<Ladder> ladder_;
  int self_ = -1;
  std::vector<Peer> peers_;  // as `nodes`
  int64_t num_stale_ = 0;
  std::optional<LostNode> lost_;
};

}  // namespace lamina
