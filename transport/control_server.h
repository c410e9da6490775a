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
// that the owner does not serve are strangers, who cannot fill the process:
//   - They hold few connections in all. When those are taken, one of them (strangers.h) is lost
//   with
//     kOutOfSpace for the next peer that greets.
//   - A frame of theirs has at most 1 MiB, few frames of each wait for the owner, and those of all
//     strangers together have at most 4 MiB: the one with most of it is lost for the next frame.
// What waits of a connection that is lost or closed is dropped.
//
// Thread: one owner.
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

  // Its connection never makes room for another. Until the next call of Keep or Serve. 0: nobody's.
  void Keep(uint64_t connection);

  // Keeps it, and it is no stranger any more: its frames may have kMaxFrameBytes, and 256 MiB of
  // them may wait.
  void Serve(uint64_t connection);

  // At once: what is queued is lost, either way. No event of this connection comes afterwards.
  void Close(uint64_t connection);

  const std::string& address() const { return listener_->address(); }
  // "127.0.0.1", "[::1]".
  std::string host() const { return address().substr(0, address().rfind(':')); }
  // "manager at 10.0.0.1:51234".
  std::string PeerName(uint64_t connection) const;

 private:
  // A peer that has greeted.
  struct Peer {
    // Shared, because a Send may run while the owner's map changes on the listener's thread.
    std::shared_ptr<ControlConnection> connection;
    Stranger stranger;
    int num_waiting = 0;  // frames that the owner has not taken yet
    size_t waiting_bytes = 0;
    size_t partial_bytes = 0;  // of a frame of which not all has come
    size_t held_bytes() const { return waiting_bytes + partial_bytes; }
    bool lost = false;  // nothing comes any more
  };

  ControlServer() = default;
  void Adopt(std::unique_ptr<ControlConnection> connection);
  std::shared_ptr<ControlConnection> Find(uint64_t connection) const;
  void MakeRoom();
  void TakeFrame(uint64_t connection, ControlFrame frame);
  void TakePartial(uint64_t connection, size_t bytes);
  void TakeLoss(uint64_t connection, Status why);

  bool IsServed(uint64_t connection) const REQUIRES(mutex_) {
    return serves_ && connection == kept_;
  }
  std::optional<uint64_t> WhoGoes() const REQUIRES(mutex_);
  void BoundWaiting(uint64_t sender) REQUIRES(mutex_);
  void BoundStrangers() REQUIRES(mutex_);
  void Lose(uint64_t connection, Status why) REQUIRES(mutex_);
  void SetKept(uint64_t connection, bool serves);

  mutable Mutex mutex_;  // also held where events are put in and taken out
  Inbox<ControlEvent> events_;
  std::map<uint64_t, Peer> peers_ GUARDED_BY(mutex_);
  uint64_t kept_ GUARDED_BY(mutex_) = 0;
  bool serves_ GUARDED_BY(mutex_) = false;  // the one that is kept
  uint64_t last_id_ GUARDED_BY(mutex_) = 0;
  std::unique_ptr<ControlListener> listener_;  // last: its thread uses the members above
};

}  // namespace lamina
