// The memory node's daemon: one manager at a time orders it over the control channel, compute nodes
// write into its windows, it answers with attention.
//
// A session begins with ConfigureMemory and ends when the manager's connection does; the KV cache,
// endpoints and windows go with it. Everything runs on the caller's thread, except the control
// channel's own threads and the kernels' team.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/departure.h"
#include "base/status.h"
#include "base/worker_team.h"
#include "kernels/token_slab.h"
#include "memory_node/attention_service.h"
#include "node/node_options.h"
#include "transport/control_port.h"
#include "transport/ladder.h"
#include "transport/rare_warning.h"
#include "wire/lanes.h"

namespace lamina {

struct MemoryNodeOptions : NodeOptions {
  // For the KV cache; on a modelled device it only counts.
  int64_t memory_bytes = 0;
  // So much of it lies in the host's memory; only on a GPU.
  int64_t host_memory_bytes = 0;
};

// Thread: owner, except Stop and Leave.
class MemoryNode {
 public:
  // Errors are those of CheckKvDevice, ReadSecretFile, TlsContext::Load and of the control channel.
  static Result<std::unique_ptr<MemoryNode>> Create(const MemoryNodeOptions& options);
  ~MemoryNode();

  const std::string& address() const { return control_->address(); }

  // Serves until Stop or, after Leave, until no manager has a session here or options.drain_timeout
  // is over. False if it left with a manager's session, which has lost this node by that.
  bool Run();

  // One round of Run, for who drives the node himself: handles what has come, without waiting.
  // `now` is the present time. Returns false if there was nothing to do. Then it need not be called
  // before something comes or wake_at.
  bool Turn(TimePoint now);
  TimePoint wake_at(TimePoint now) const;

  // Thread: any, and from a signal handler.
  void Stop();
  void Leave();

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
  struct Session {
    uint64_t connection = 0;
    uint64_t epoch = 0;
    std::string token;                        // what a peer of the data path must show
    Switch payload_checksum = Switch::kAuto;  // the manager's setting
    WireShape wire;
    std::unique_ptr<AttentionService> service;
    // To compute nodes, until one of them joins it; null: the device has none.
    std::unique_ptr<AheadAttention> offered;
    bool opens_to_nics = false;  // what is offered
    std::unique_ptr<Ladder> ladder;
    // Last: endpoints and buffers go before the fabrics that made them.
    std::vector<ComputePeer> peers;
  };

  MemoryNode(const MemoryNodeOptions& options, std::unique_ptr<ControlPort> control);

  void Sleep();
  bool HandleControl();
  void HandleFrame(uint64_t connection, const ControlFrame& frame);
  void Configure(uint64_t connection, const std::string& payload);
  Result<Configured> Serve(uint64_t connection, const std::string& payload);
  Result<Configured> Open(const ConfigureMemory& request);
  void Send(uint64_t connection, MessageType type, std::string message);
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
  void EndSession(const std::string& why);

  const MemoryNodeOptions options_;
  std::unique_ptr<ControlPort> control_;
  WorkerTeam team_;
  std::unique_ptr<Session> session_;
  RareLines connected_lines_, dropped_lines_, refused_lines_, unsent_lines_, accept_lines_;
  WakeFd stop_wake_;
  TimePoint next_accept_{};
  Departure departure_{options_.drain_timeout};
};

}  // namespace lamina
