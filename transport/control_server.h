// The control channel of a daemon on a network: who connects, and what they may send.
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
#include "transport/control_port.h"
#include "transport/strangers.h"

namespace lamina {

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
class ControlServer final : public ControlPort {
 public:
  // kInvalidArgument for an address that cannot be parsed, or off the loopback without secret and
  // certificate; kNotFound if its host is unknown; kOutOfSpace if the port is in use.
  static Result<std::unique_ptr<ControlServer>> Create(const std::string& address,
                                                       const ControlOptions& options);
  ~ControlServer() override;

  std::optional<ControlEvent> TryPop() override;
  int fd() const override { return events_.fd(); }
  Status Send(uint64_t connection, uint16_t type, std::string payload) override;
  void Keep(uint64_t connection) override;
  void Serve(uint64_t connection) override;
  void ServeToo(uint64_t connection) override;
  void Close(uint64_t connection) override;
  const std::string& address() const override { return listener_->address(); }
  std::string PeerName(uint64_t connection) const override;

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
    bool lost = false;        // nothing comes any more
    bool served_too = false;  // beside the one that is kept
  };

  ControlServer() = default;
  void Adopt(std::unique_ptr<ControlConnection> connection);
  std::shared_ptr<ControlConnection> Find(uint64_t connection) const;
  void MakeRoom();
  void TakeFrame(uint64_t connection, ControlFrame frame);
  void TakePartial(uint64_t connection, size_t bytes);
  void TakeLoss(uint64_t connection, Status why);

  bool IsServed(uint64_t connection) const REQUIRES(mutex_) {
    return (serves_ && connection == kept_) || peers_.at(connection).served_too;
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

// ControlServer::Create, as an OpenControl.
Result<std::unique_ptr<ControlPort>> OpenControlServer(const std::string& address,
                                                       const ControlOptions& options);

}  // namespace lamina
