// A daemon's end of the control channel: all peers' frames as one queue of events for the daemon's
// own thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/inbox.h"
#include "base/mutex.h"
#include "base/status.h"
#include "transport/control_channel.h"
#include "transport/strangers.h"

namespace lamina {

struct ControlEvent {
  enum class Kind { kConnected, kFrame, kLost };
  Kind kind = Kind::kConnected;
  uint64_t connection = 0;  // never reused
  ControlFrame frame;       // kFrame
  Status status;            // kLost
};

// Accepts peers and queues what they send as events. Owns the listener and the connections. Peers
// that the owner does not keep (Keep) hold few connections in all: when those are taken, one of
// them (strangers.h) is lost with kOutOfSpace for the next peer that greets. Such a peer is also
// lost if more than a few of its frames wait for the owner, or one has more than 1 MiB. Thread: one
// owner.
class ControlServer {
 public:
  // kInvalidArgument for an address that cannot be parsed, or off the loopback without secret and
  // certificate; kNotFound if its host is unknown; kOutOfSpace if the port is in use.
  static Result<std::unique_ptr<ControlServer>> Create(const std::string& address,
                                                       const ControlOptions& options);
  ~ControlServer();

  std::optional<ControlEvent> TryPop();
  int fd() const { return events_.fd(); }  // readable while there may be an event

  // kPeerLost if the connection is gone.
  Status Send(uint64_t connection, uint16_t type, std::string payload);

  // Keeps the peer that is served, until the next call: its connection never makes room for
  // another, and its frames may have up to kMaxFrameBytes.
  void Keep(uint64_t connection);

  // Sends what is queued, for 1 s at most, and closes. No event of this connection is made
  // afterwards, but events that are queued already still come.
  void Close(uint64_t connection);

  const std::string& address() const { return listener_->address(); }
  // "127.0.0.1", "[::1]".
  std::string host() const { return address().substr(0, address().rfind(':')); }
  // "manager at 10.0.0.1:51234".
  std::string PeerName(uint64_t connection) const;

 private:
  ControlServer() = default;
  void Adopt(std::unique_ptr<ControlConnection> connection);
  std::shared_ptr<ControlConnection> Find(uint64_t connection) const;
  void MakeRoom();
  void TakeFrame(uint64_t connection, ControlFrame frame);
  void PushLost(uint64_t connection, Status why);

  // A peer that has greeted.
  struct Peer {
    // Shared, because a Send may run while the owner's map changes on the listener's thread.
    std::shared_ptr<ControlConnection> connection;
    Stranger stranger;
    int num_waiting = 0;  // frames that the owner has not taken yet
    bool flooded = false;
  };

  Inbox<ControlEvent> events_;
  mutable Mutex mutex_;
  std::map<uint64_t, Peer> peers_ GUARDED_BY(mutex_);
  uint64_t kept_ GUARDED_BY(mutex_) = 0;
  uint64_t last_id_ GUARDED_BY(mutex_) = 0;
  std::unique_ptr<ControlListener> listener_;  // last: its thread uses the members above
};

}  // namespace lamina
