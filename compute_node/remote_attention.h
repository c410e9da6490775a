// Attention in a cluster with memory nodes, which hold the KV. The session's memory nodes are
// memory_peers.h, what happens to one step is remote_step.h, and how decode rows get their
// attention from one memory node is decode_path.h.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "compute_node/attention_strategy.h"
#include "compute_node/remote_session.h"
#include "compute_node/remote_step.h"
#include "transport/ladder.h"

namespace lamina {

class ConnectingAttention;

// Thread: one owner.
class RemoteAttention final : public AttentionStrategy {
 public:
  // Begins to connect to every memory node, until `deadline`. Borrows the device. kOutOfSpace if
  // the device has no room for the prefill cache, or the host none for its slots or the messages;
  // kInvalidArgument if that cache cannot have so many tokens, or offers cannot be read. The ladder
  // is shared with the paths to other compute nodes.
  static Result<ConnectingAttention> StartConnect(const RemoteAttentionOptions& options,
                                                  std::shared_ptr<Ladder> ladder,
                                                  const std::vector<MemoryNodeAddress>& addresses,
                                                  ComputeDevice& device, Deadline deadline);

  // StartConnect, and Poll until all are connected or `deadline`, whose errors it returns. Blocks;
  // for callers with nothing else to look after.
  static Result<std::unique_ptr<RemoteAttention>> Create(
      const RemoteAttentionOptions& options, std::shared_ptr<Ladder> ladder,
      const std::vector<MemoryNodeAddress>& addresses, ComputeDevice& device, Deadline deadline);

  Capabilities capabilities() const override {
    return {.queries_first = session_.options.wire.overlap};
  }
  RemoteStep& Begin(const AttentionRows& rows) override;
  void Release(SequenceId sequence) override { session_.prefill->Release(sequence); }
  void Poll() override { session_.peers.Poll(); }
  void Sleep(std::span<const int> fds, Deadline latest) override;
  void TraceTo(StepTrace& trace) override { session_.trace = &trace; }
  void GiveUp() override { session_.peers.GiveUp(); }
  void Lose(NodeId node, const std::string& why) override { session_.peers.Lose(node, why); }
  std::vector<LostNode> LostNodes() const override { return session_.peers.Lost(); }
  std::vector<PeerState> TakePeerStates() override { return session_.peers.TakeStates(); }
  bool suspends() const override { return session_.peers.any_suspended(); }
  TimePoint wake_at() const override;
  std::vector<DataPath> paths() const override { return session_.peers.paths(); }

 private:
  RemoteAttention(const RemoteAttentionOptions& options, std::shared_ptr<Ladder> ladder,
                  std::unique_ptr<PrefillKv> prefill, ComputeDevice& device)
      : session_{options, device,
                 MemoryPeers(std::move(ladder), options.peer_timeout, options.suspect_after),
                 std::move(prefill)} {}
  Status StartPeers(const std::vector<MemoryNodeAddress>& addresses, Deadline deadline);

  friend class ConnectingAttention;
  RemoteSession session_;
  std::vector<std::unique_ptr<RemoteStep>> steps_;  // by batch
};

// Attention whose memory nodes are being connected. Destroying it gives that up. Can be moved.
// Thread: one owner.
class ConnectingAttention {
 public:
  // Goes on without waiting. Returns the attention once all nodes are connected, kTryAgain until
  // then; other errors name the memory node that could not be reached. REQUIRES: every call before
  // this one returned kTryAgain.
  Result<std::unique_ptr<RemoteAttention>> Poll();

  // When to call Poll again at the latest; Ladder::Sleep wakes the owner when it gets further
  // before that. REQUIRES: Poll returned kTryAgain.
  TimePoint wake_at() const { return attention_->session_.peers.wake_at(); }

 private:
  friend class RemoteAttention;
  explicit ConnectingAttention(std::unique_ptr<RemoteAttention> attention)
      : attention_(std::move(attention)) {}

  std::unique_ptr<RemoteAttention> attention_;
};

}  // namespace lamina
