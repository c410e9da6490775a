// The data paths between compute nodes: a batch's context goes from the one that ran a slice to the one that runs the next, while memory
// nodes compute attention for it.
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
#include "splitter/wire_format.h"
#include "transport/ladder.h"

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
  Clock::duration peer_timeout = std::chrono::seconds(10);
};

// Thread: one owner.
class ContextExchange {
 public:
  // Connects to the nodes that stand before self in `nodes`, then waits for those behind it; all before `deadline`. The error names the one
  // that is missing. kInvalidArgument: self is not among them. REQUIRES: the ladder listens.
  static Result<std::unique_ptr<ContextExchange>> Join(const ContextExchangeOptions& options, std::shared_ptr<Ladder> ladder,
                                                       std::span<const ContextPeerAddress> nodes, Deadline deadline);

  int num_nodes() const { return static_cast<int>(peers_.size()); }
  int self() const { return self_; }  // index in `nodes`, as all indices here
  NodeId node(int index) const { return peers_[static_cast<size_t>(index)].address.node; }

  // A batch's context: fill its payload, then post it. Waits for room at most for the peer timeout; an error is kept in lost().
  // REQUIRES: `to` has taken the one before of this batch.
  std::span<std::byte> payload(int to, int batch);
  Status Post(int to, int batch, StepId step, int slice, size_t num_rows, size_t payload_bytes);

  // Takes what came.
  void Poll();
  bool arrived(int from, int batch) const { return peers_[static_cast<size_t>(from)].areas[static_cast<size_t>(batch)].arrived; }

  // The payload of what arrived, borrowed until the next one of this batch can come; kCorrupt unless it is for this slice of this step.
  Result<std::span<const std::byte>> Take(int from, int batch, StepId step, int slice);

  // Bytes of `from` cannot be trusted, or it is gone. Returns the error.
  Status Lose(int from, const std::string& why);

  // The first of the others that is lost, and why; nothing can go on then.
  const std::optional<LostNode>& lost() const { return lost_; }

  int64_t TakeStale();  // notifications that came twice, since the last call

  // How nodes before this one are reached.
  std::vector<AttentionBackend::ChosenPath> paths() const;

 private:
  struct Area {
    uint32_t sent = 0, received = 0;  // numbers of the last messages
    bool arrived = false;
  };
  struct Peer {
    ContextPeerAddress address;
    std::unique_ptr<Buffer> buffer;      // its window, as it is written here; null: it can be written itself
    std::unique_ptr<Endpoint> endpoint;  // after the buffer: it goes first; null: this node, or not here yet
    bool payload_checksum = false;
    AttentionBackend::ChosenPath path;
    std::array<Area, kMaxBatches> areas{};
  };

  ContextExchange(const ContextExchangeOptions& options, std::shared_ptr<Ladder> ladder) : options_(options), ladder_(std::move(ladder)) {}

  Status Connect(Peer& peer, Deadline deadline);
  Status AcceptOthers(Deadline deadline);
  Status Use(Peer& peer, Path path);
  static std::span<std::byte> Outgoing(const Peer& peer) {
    return peer.buffer == nullptr ? peer.endpoint->peer_window() : peer.buffer->bytes();
  }
  void TakeNotification(int from, uint32_t value);
  uint64_t area_bytes() const { return WireShape::Align(sizeof(MessageHeader) + options_.payload_bytes); }
  uint64_t window_bytes() const { return area_bytes() * static_cast<uint64_t>(options_.num_batches); }

  const ContextExchangeOptions options_;
  const std::shared_ptr<Ladder> ladder_;
  int self_ = -1;
  std::vector<Peer> peers_;  // as `nodes`
  int64_t num_stale_ = 0;
  std::optional<LostNode> lost_;
};

}  // namespace lamina
