// A manager's session on a memory node: its KV cache, and the compute nodes that write into its
// windows and are answered with attention.
//
// All that the session has is in this object: destroying it ends the session and frees its slots,
// windows and connections.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/worker_team.h"
#include "memory_node/attention_service.h"
#include "memory_node/memory_node_options.h"
#include "node/manager_channel.h"
#include "transport/ladder.h"
#include "transport/rare_warning.h"
#include "wire/lanes.h"

namespace lamina {

// Thread: owner.
class MemorySession {
 public:
  // Opens what the order of `manager` asks for; the caller answers the order. Borrows the team.
  // `kept`: the KV that the order names or takes over, of a session that had the same attention and
  // capacity; without a device: a new one is made.
  // kInvalidArgument for an order that cannot be; kOutOfSpace if there is no memory for its KV
  // cache or its messages; other errors are those of the device and of the ladder.
  static Result<std::unique_ptr<MemorySession>> Open(const ConfigureMemory& request,
                                                     const ManagerConnection& manager,
                                                     const MemoryNodeOptions& options,
                                                     WorkerTeam& team, KvState kept = {});
  MemorySession(const MemorySession&) = delete;
  MemorySession& operator=(const MemorySession&) = delete;

  // Ends the session, but for its KV.
  static KvState End(std::unique_ptr<MemorySession> session);

  const ManagerConnection& manager() const { return manager_; }
  const AttentionSpec& attention() const { return spec_; }
  uint64_t kv_id() const { return kv_id_; }
  Clock::duration keep_for() const { return keep_for_; }
  // The answer to the order that opened it.
  Configured opened() const;

  // Takes a message of its manager; returns false if it is malformed or not expected.
  bool HandleFrame(const ControlFrame& frame);

  // Handles what has come from compute nodes, without waiting. Returns false if there was nothing
  // to do. Then it need not be called before something comes or wake_at.
  bool Turn(TimePoint now);
  TimePoint wake_at(TimePoint now) const;
  // Sleeps until something may have come from a compute node, one of `fds` is readable, or
  // `latest`.
  void Sleep(std::span<const int> fds, TimePoint latest);

 private:
  struct ComputePeer {
    std::unique_ptr<Lanes> lanes;
    NodeId node;
    // Those that were not handled yet, oldest first: a message may have to wait for its order.
    std::deque<Notification> notifications;
    // When Poll showed the last message of each decode area.
    std::array<int64_t, kMaxBatches> noticed_ns{};
    // With overlap: the decode messages whose first part is here.
    std::array<AttentionService::Begun, kMaxBatches> begun;
    bool joined = false;  // asks the device itself
    bool lost = false;
  };

  MemorySession(const ManagerConnection& manager, const ConfigureMemory& request);

  void ForgetLeft();

  bool AcceptPeers(TimePoint now);
  bool IsMember(const std::optional<DataHello>& hello) const;
  bool PollPeer(ComputePeer& peer);
  bool HandleNotification(ComputePeer& peer, const Notification& notification);
  void HandleLink(ComputePeer& peer, bool wanted);
  void HandlePush(ComputePeer& peer, const ReceivedMessage& message, uint32_t slot, bool stale);
  void HandleDecode(ComputePeer& peer, const ReceivedMessage& message, uint32_t slot);
  ComputePeer* TakerOf(ComputePeer& peer, const MessageHeader& header);
  void BeginDecode(ComputePeer& peer, ComputePeer& taker, const ReceivedMessage& queries,
                   uint32_t slot);
  void EndDecode(ComputePeer& peer, ComputePeer& taker, const ReceivedMessage& message,
                 uint32_t slot);
  static void Lose(ComputePeer& peer, const Status& why);
  // Loses the peer if `posted` says that an answer could not be sent to it.
  static void LoseUnless(ComputePeer& peer, const Status& posted);

  const ManagerConnection manager_;
  const uint64_t epoch_;
  const std::string token_;        // what a peer of the data path must show
  const Switch payload_checksum_;  // the manager's setting
  const AttentionSpec spec_;
  const uint64_t manager_id_, kv_content_;
  const Clock::duration keep_for_;
  uint64_t kv_id_ = 0;
  std::vector<SequenceId> missing_;  // of what was to be kept
  // Of another manager, whose sequences have their tables until this one sends a message: that is
  // behind everything that might let the session fail, and then the next one may take them over.
  LeftKv left_;
  int64_t capacity_tokens_ = 0;
  WireShape wire_;
  std::unique_ptr<AttentionService> service_;
  // To compute nodes, until one of them joins it; null: the device has none.
  std::unique_ptr<AheadAttention> offered_;
  bool opens_to_nics_ = false;  // what is offered
  RareLines accept_lines_;
  TimePoint next_accept_{};
  std::unique_ptr<Ladder> ladder_;
  // Last: endpoints and buffers go before the fabrics that made them.
  std::vector<ComputePeer> peers_;
};

}  // namespace lamina
