#include "compute_node/memory_peers.h"

#include <algorithm>
#include <string>

namespace lamina {
namespace {

// How often to look at what a device has done: it wakes nobody.
constexpr auto kDeviceInterval = microseconds(100);

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
}

void MemoryPeers::LoseLate(MemoryPeer& peer, const TracedWork& of, const char* what) const {
  const auto timeout = std::chrono::duration_cast<milliseconds>(peer_timeout_).count();
  peer.Lose("step " + std::to_string(of.step.value) + " batch " + std::to_string(of.batch) +
            " layer " + std::to_string(of.layer) + ": " + what + " did not come from " +
            peer.peer_name() + " over " + peer.path().fabric + " within " +
            std::to_string(timeout) + " ms");
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

std::vector<LostNode> MemoryPeers::TakeLost() {
  std::vector<LostNode> lost;
  for (Peer& peer : peers_) {
    const MemoryPeer& connection = *peer.connection;
    if (connection.lost() && !peer.told)
      lost.push_back({connection.address().node, connection.name() + ": " + connection.why()});
    peer.told = connection.lost();
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
