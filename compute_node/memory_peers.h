// The memory nodes of a session, as a compute node reaches them: it polls all of them, waits for
// one of them while it polls the others, and knows which were lost.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/backoff.h"
#include "base/clock.h"
#include "compute_node/memory_peer.h"
#include "compute_node/step_trace.h"
#include "transport/ladder.h"

namespace lamina {

// Thread: one owner.
class MemoryPeers {
 public:
  // `peer_timeout` is how long a memory node may take for anything. The ladder is shared with the
  // paths to other compute nodes.
  MemoryPeers(std::shared_ptr<Ladder> ladder, Clock::duration peer_timeout)
      : ladder_(std::move(ladder)), peer_timeout_(peer_timeout) {}

  // Begins to connect to one more memory node. Arguments and errors are those of
  // MemoryPeer::StartConnect.
  Status StartConnect(const MemoryNodeAddress& address, const WireShape& wire,
                      const DataPathOptions& options, Result<std::unique_ptr<DeviceLink>> link,
                      Deadline deadline);

  // Goes on connecting, without waiting. Ok once all nodes are connected, kTryAgain until then; the
  // errors of ConnectingPeer::Poll. The calls below REQUIRE that it has returned ok.
  Status Connect();
  // When to call Connect again at the latest; Sleep of the ladder wakes the owner before that.
  TimePoint wake_at() const;

  // In the order of StartConnect.
  size_t size() const { return peers_.size(); }
  MemoryPeer& operator[](size_t index) const { return *peers_[index].connection; }
  Clock::duration peer_timeout() const { return peer_timeout_; }

  // Takes what has come from any node. Returns whether anything happened.
  bool Poll();

  // Polls until done() is true. Returns false if the peer is lost before, or does not get there
  // within the peer timeout and is lost by that. `what` says for what step `of` waits.
  template <typename Done>
  bool WaitFor(MemoryPeer& peer, const TracedWork& of, const char* what, Done done);

  // The peer is lost, because `what` did not come from it within the peer timeout.
  void LoseLate(MemoryPeer& peer, const TracedWork& of, const char* what) const;

  // Sleeps until something has come, one of `fds` is readable, or `latest`. Only briefly if a
  // device is waited for: it wakes nobody.
  void Sleep(std::span<const int> fds, Deadline latest, bool waits_for_device) const;

  // See AttentionStrategy::WhileWaiting.
  void WhileWaiting(Clock::duration interval, std::function<void()> work) {
    waiting_interval_ = interval;
    while_waiting_ = std::move(work);
  }

  // Whether this host posts messages that a device has written, to any node.
  bool posts_for_device() const;
  // No result is needed any more: devices end their waits early.
  void GiveUp();

  // The nodes that were lost since the last call.
  std::vector<LostNode> TakeLost();
  // The number of notifications that came twice since the last call.
  int64_t TakeStale();
  std::vector<DataPath> paths() const;

 private:
  // How long a wait polls before it sleeps.
  static constexpr auto kPatience = microseconds(200);

  struct Peer {
    std::unique_ptr<ConnectingPeer> connecting;  // null once it is connected
    std::unique_ptr<MemoryPeer> connection;      // null until then
    bool told = false;                           // it is lost, and TakeLost has said so
  };
  // Whether a device has written messages that this host has still to post.
  bool Carrying() const;

  const std::shared_ptr<Ladder> ladder_;
  const Clock::duration peer_timeout_;
  std::vector<Peer> peers_;
  std::function<void()> while_waiting_;  // may be null
  Clock::duration waiting_interval_{};   // for while_waiting_
};

template <typename Done>
bool MemoryPeers::WaitFor(MemoryPeer& peer, const TracedWork& of, const char* what, Done done) {
  if (done()) return true;
  const Deadline deadline = Deadline::After(peer_timeout_);
  Backoff backoff(kPatience);
  while (!peer.lost()) {
    const bool progress = Poll();
    if (progress) backoff.Reset();
    if (while_waiting_) while_waiting_();
    if (!peer.lost() && done()) return true;
    if (deadline.Passed()) {
      LoseLate(peer, of, what);
    } else if (!progress && backoff.Idle()) {
      const TimePoint next = while_waiting_ ? Clock::now() + waiting_interval_ : TimePoint::max();
      Sleep({}, Deadline(std::min(next, deadline.at())), /*waits_for_device=*/false);
    }
  }
  return false;
}

}  // namespace lamina
