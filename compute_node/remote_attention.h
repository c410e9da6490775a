// Attention in a cluster with memory nodes, which hold the KV. The session's memory nodes are
// memory_peers.h, what happens to one step is remote_step.h, and how decode rows get their
// attention from one memory node is decode_path.h.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "compute_node/attention_strategy.h"
#include "compute_node/remote_session.h"
#include "compute_node/remote_step.h"
#include "transport/ladder.h"

namespace lamina {

// Thread: one owner.
class RemoteAttention final : public AttentionStrategy {
 public:
  // Connects to every memory node before `deadline`. Borrows the device. kOutOfSpace if the device
  // has no room for the prefill cache, or the host none for its slots or the messages;
  // kInvalidArgument if that cache cannot have so many tokens; other errors name the memory node
  // that could not be reached. The ladder is shared with the paths to other compute nodes.
  static Result<std::unique_ptr<RemoteAttention>> Create(
      const RemoteAttentionOptions& options, std::shared_ptr<Ladder> ladder,
      const std::vector<MemoryPeerAddress>& addresses, ComputeDevice& device, Deadline deadline);

  Capabilities capabilities() const override {
    return {.queries_first = session_.options.wire.overlap};
  }
  RemoteStep& Begin(const AttentionRows& rows) override;
  void Release(SequenceId sequence) override { session_.prefill->Release(sequence); }
  void Poll() override { session_.peers.Poll(); }
  void Sleep(std::span<const int> fds, Deadline latest) override;
  void TraceTo(StepTrace& trace) override { session_.trace = &trace; }
  void WhileWaiting(Clock::duration interval, std::function<void()> work) override {
    session_.peers.WhileWaiting(interval, std::move(work));
  }
  void GiveUp() override { session_.peers.GiveUp(); }
  std::vector<LostNode> TakeLostNodes() override { return session_.peers.TakeLost(); }
  std::vector<ChosenPath> paths() const override { return session_.peers.paths(); }

 private:
  RemoteAttention(const RemoteAttentionOptions& options, std::shared_ptr<Ladder> ladder,
                  std::unique_ptr<PrefillKv> prefill, ComputeDevice& device)
      : session_{options, device, MemoryPeers(std::move(ladder), options.peer_timeout),
                 std::move(prefill)} {}
  Status Connect(const std::vector<MemoryPeerAddress>& addresses, Deadline deadline);

  RemoteSession session_;
  std::vector<std::unique_ptr<RemoteStep>> steps_;  // by batch
};

}  // namespace lamina
