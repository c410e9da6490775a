#include "compute_node/memory_peers.h"

#include <algorithm>
#include <string>

#include "base/log.h"

namespace lamina {
namespace {

// How often to look at what a device has done: it wakes nobody.
constexpr auto kDeviceInterval = microseconds(100);

std::string WhereIn(const TracedWork& of) {
  return "step " + std::to_string(of.step.value) + " batch " + std::to_string(of.batch) +
         " layer " + std::to_string(of.layer) + ": ";
}

}  // namespace

Status MemoryPeers::StartConnect(const MemoryNodeAddress& address, const WireShape& wire,
                                 const DataPathOptions& options,
                                 Result<std::unique_ptr<DeviceLink>> link) {
  LAMINA_ASSIGN_OR_RETURN(
      std::unique_ptr<ConnectingPeer> connecting,
      MemoryPeer::StartConnect(address, wire, options, std::move(link), *ladder_));
  peers_.push_back({std::move(connecting), nullptr});
  return OkStatus();
}

Status MemoryPeers::Connect() {
  bool all = true;
  for (Peer& peer : peers_) {
    if (peer.connecting == nullptr) {
      peer.connection->Poll();  // what comes from it must not keep the owner from sleeping
      continue;
    }
    Result<std::unique_ptr<MemoryPeer>> connection = peer.connecting->Poll();
    if (connection.ok()) {
      peer.connection = *std::move(connection);
      peer.connecting.reset();
    } else if (connection.status().code() == StatusCode::kTryAgain) {
      all = false;
    } else {
      return connection.status();
    }
  }
  return all ? OkStatus() : TryAgain();
}

TimePoint MemoryPeers::wake_at() const {
  TimePoint first = TimePoint::max();
  for (const Peer& peer : peers_) {
    if (peer.connecting != nullptr) first = std::min(first, peer.connecting->wake_at());
  }
  return first;
}

void MemoryPeers::Poll() {
  for (const Peer& peer : peers_) peer.connection->Poll();
  if (any_suspended()) LookAfterSuspended(Clock::now());
}

std::string MemoryPeers::LateText(const MemoryPeer& peer, const TracedWork& of, const char* what,
                                  Clock::duration waited) const {
  return WhereIn(of) + what + " did not come from " + peer.peer_name() + " over " +
         peer.path().fabric + " within " +
         std::to_string(std::chrono::duration_cast<milliseconds>(waited).count()) + " ms";
}

void MemoryPeers::LoseLate(MemoryPeer& peer, const TracedWork& of, const char* what) const {
  peer.Lose(LateText(peer, of, what, peer_timeout_));
}

Clock::duration MemoryPeers::PatienceWith(const MemoryPeer& peer) const {
  constexpr int kMeanWaits = 20;
  // What devices exchange themselves is not waited for here, and what is owed would not be seen.
  if (suspect_after_ == Clock::duration::zero() || peer.link() != nullptr) return peer_timeout_;
  return std::min(peer_timeout_, std::max(suspect_after_, kMeanWaits * peer.mean_wait()));
}

void MemoryPeers::BeLate(MemoryPeer& late, TimePoint since, const TracedWork& of,
                         const char* what) {
  const Clock::duration patience = PatienceWith(late);
  if (patience == peer_timeout_) return LoseLate(late, of, what);
  Suspend(late, since, LateText(late, of, what, patience));
}

void MemoryPeers::BeLateToo(MemoryPeer& late, TimePoint since, const TracedWork& of) {
  Suspend(late, since, WhereIn(of) + "another compute node has not waited for " + late.peer_name());
}

void MemoryPeers::Suspend(MemoryPeer& late, TimePoint since, std::string why) {
  const auto peer =
      std::ranges::find_if(peers_, [&](const Peer& one) { return one.connection.get() == &late; });
  late.Suspend(since, ++num_suspensions_);
  ++num_suspended_;
  peer->late_why = std::move(why);
  LAMINA_LOG_WARN("memory node {} is suspended: {}", late.name(), peer->late_why);
  states_.push_back({.node = late.address().node,
                     .state = PeerState::State::kSuspended,
                     .message = late.name() + ": " + peer->late_why,
                     .suspension = late.suspension()});
}

TimePoint MemoryPeers::suspended_until() const {
  TimePoint first = TimePoint::max();
  if (!any_suspended()) return first;
  for (const Peer& peer : peers_) {
    if (peer.connection->suspended())
      first = std::min(first, peer.connection->late_since() + peer_timeout_);
  }
  return first;
}

void MemoryPeers::LookAfterSuspended(TimePoint now) {
  for (Peer& peer : peers_) {
    MemoryPeer& connection = *peer.connection;
    if (!connection.suspended()) continue;
    const bool goes_on = !connection.lost() && connection.TakeOwed(now);
    if (!goes_on && !connection.lost()) {
      if (now < connection.late_since() + peer_timeout_) continue;
      connection.Lose(
          peer.late_why + ", nor within " +
          std::to_string(std::chrono::duration_cast<milliseconds>(peer_timeout_).count()) + " ms");
    }
    if (goes_on) {
      LAMINA_LOG_INFO("memory node {} has answered: it is not suspended any more",
                      connection.name());
      states_.push_back({.node = connection.address().node,
                         .state = PeerState::State::kResumed,
                         .message = {},
                         .suspension = connection.suspension()});
    } else {
      connection.EndSuspension();
      if (!std::exchange(peer.told, true))
        states_.push_back({.node = connection.address().node,
                           .state = PeerState::State::kLost,
                           .message = connection.name() + ": " + connection.why(),
                           .suspension = connection.suspension()});
    }
    --num_suspended_;
  }
}

void MemoryPeers::Lose(NodeId node, const std::string& why) {
  for (Peer& peer : peers_) {
    if (peer.connection->address().node != node) continue;
    peer.connection->Lose("the manager says: " + why);
    peer.told = true;
  }
}

void MemoryPeers::Sleep(std::span<const int> fds, Deadline latest, bool waits_for_device) const {
  ladder_->Sleep(fds, waits_for_device || Carrying() ? Deadline::After(kDeviceInterval) : latest);
}

bool MemoryPeers::Carrying() const {
  return std::ranges::any_of(peers_, [](const Peer& peer) { return peer.connection->carries(); });
}

bool MemoryPeers::posts_for_device() const {
  return std::ranges::any_of(peers_, [](const Peer& peer) {
    return peer.connection->link() != nullptr && peer.connection->link()->by_posts();
  });
}

void MemoryPeers::GiveUp() {
  for (const Peer& peer : peers_) {
    if (peer.connection->link() != nullptr) peer.connection->link()->GiveUp();
  }
}

std::vector<LostNode> MemoryPeers::Lost() const {
  std::vector<LostNode> lost;
  for (const Peer& peer : peers_) {
    const MemoryPeer& connection = *peer.connection;
    if (connection.lost() && !peer.told)
      lost.push_back({connection.address().node, connection.name() + ": " + connection.why()});
  }
  return lost;
}

int64_t MemoryPeers::TakeStale() {
  int64_t num_stale = 0;
  for (const Peer& peer : peers_) num_stale += peer.connection->TakeStale();
  return num_stale;
}

std::vector<DataPath> MemoryPeers::paths() const {
  std::vector<DataPath> paths;
  for (const Peer& peer : peers_) paths.push_back(peer.connection->path());
  return paths;
}

}  // namespace lamina
