// The memory nodes of a session, as a compute node reaches them: it polls all of them, and knows
// which were lost.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "compute_node/memory_peer.h"
#include "compute_node/step_trace.h"
#include "transport/ladder.h"

namespace lamina {

// Thread: one owner.
class MemoryPeers {
 public:
  // `peer_timeout` is how long a memory node may take for anything. One that has taken
  // `suspect_after`, or 20 times as long as it takes for a layer on the average, is suspended; 0:
  // none is. The ladder is shared with the paths to other compute nodes.
  MemoryPeers(std::shared_ptr<Ladder> ladder, Clock::duration peer_timeout,
              Clock::duration suspect_after)
      : ladder_(std::move(ladder)), peer_timeout_(peer_timeout), suspect_after_(suspect_after) {}

  // Begins to connect to one more memory node. Arguments and errors are those of
  // MemoryPeer::StartConnect.
  Status StartConnect(const MemoryNodeAddress& address, const WireShape& wire,
                      const DataPathOptions& options, Result<std::unique_ptr<DeviceLink>> link);

  // Goes on connecting, without waiting. Ok once all nodes are connected, kTryAgain until then; the
  // errors of ConnectingPeer::Poll. The calls below REQUIRE that it has returned ok.
  Status Connect();
  // When to call Connect again at the latest; Sleep of the ladder wakes the owner before that.
  TimePoint wake_at() const;

  // In the order of StartConnect.
  size_t size() const { return peers_.size(); }
  MemoryPeer& operator[](size_t index) const { return *peers_[index].connection; }
  Clock::duration peer_timeout() const { return peer_timeout_; }

  // Takes what has come from any node, and sends what was queued for want of room. A suspended
  // node goes on if it has answered everything, and is lost after the peer timeout.
  void Poll();

  // How long the node may keep a step waiting.
  Clock::duration PatienceWith(const MemoryPeer& peer) const;
  // `what` has not come from it for so long since `since`: it is suspended, or lost if
  // PatienceWith is the peer timeout. REQUIRES: it is neither.
  void BeLate(MemoryPeer& peer, TimePoint since, const TracedWork& of, const char* what);
  // Another compute node has suspended it, so that what is waited for here since `since` is late
  // too. REQUIRES: it is neither suspended nor lost.
  void BeLateToo(MemoryPeer& peer, TimePoint since, const TracedWork& of);
  bool any_suspended() const { return num_suspended_ > 0; }
  // When the first suspended node is lost; the end of time without one.
  TimePoint suspended_until() const;

  // The peer is lost, because `what` did not come from it within the peer timeout.
  void LoseLate(MemoryPeer& peer, const TracedWork& of, const char* what) const;

  // The manager has lost a node, if there is such a node here. The first reason is kept.
  void Lose(NodeId node, const std::string& why);

  // Sleeps until something has come, one of `fds` is readable, or `latest`. Only briefly if a
  // device is waited for: it wakes nobody.
  void Sleep(std::span<const int> fds, Deadline latest, bool waits_for_device) const;

  // Whether this host posts messages that a device has written, to any node.
  bool posts_for_device() const;
  // No result is needed any more: devices end their waits early.
  void GiveUp();

  // The nodes that are lost, without those that were suspended, of which TakeStates tells, and
  // those that the manager has lost: it knows.
  std::vector<LostNode> Lost() const;
  // See AttentionStrategy::TakePeerStates. The epoch is the caller's to fill in.
  std::vector<PeerState> TakeStates() { return std::exchange(states_, {}); }
  // The number of notifications that came twice since the last call.
  int64_t TakeStale();
  std::vector<DataPath> paths() const;

 private:
  struct Peer {
    std::unique_ptr<ConnectingPeer> connecting;  // null once it is connected
    std::unique_ptr<MemoryPeer> connection;      // null until then
    bool told = false;                           // it is lost, and no result need say so
    std::string late_why = {};                   // while it is suspended
  };
  std::string LateText(const MemoryPeer& peer, const TracedWork& of, const char* what,
                       Clock::duration waited) const;
  void Suspend(MemoryPeer& late, TimePoint since, std::string why);
  void LookAfterSuspended(TimePoint now);
  // Whether a device has written messages that this host has still to post.
  bool Carrying() const;

  const std::shared_ptr<Ladder> ladder_;
  const Clock::duration peer_timeout_, suspect_after_;
  std::vector<Peer> peers_;
  int num_suspended_ = 0;          // now
  uint64_t num_suspensions_ = 0;   // so far
  std::vector<PeerState> states_;  // that TakeStates has not told
};

}  // namespace lamina
