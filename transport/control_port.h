// A daemon's end of the control channel, as the daemon sees it: all peers' frames as one queue of
// events. control_server.h has the peers of a network; tests hand in frames themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "transport/control_channel.h"

namespace lamina {

struct ControlEvent {
  enum class Kind { kConnected, kFrame, kLost };
  Kind kind = Kind::kConnected;
  uint64_t connection = 0;  // never reused
  ControlFrame frame;       // kFrame
  Status status;            // kLost
};

// Thread: one owner.
class ControlPort {
 public:
  virtual ~ControlPort() = default;

  virtual std::optional<ControlEvent> TryPop() = 0;
  virtual int fd() const = 0;  // readable while there may be an event

  // kPeerLost if the connection is gone.
  virtual Status Send(uint64_t connection, uint16_t type, std::string payload) = 0;

  // Its connection never makes room for another. Until the next call of Keep or Serve. 0: nobody's.
  virtual void Keep(uint64_t connection) = 0;

  // Keeps it, and it is no stranger any more: its frames may have kMaxFrameBytes, and 256 MiB of
  // them may wait.
  virtual void Serve(uint64_t connection) = 0;

  // As Serve, beside those that are kept or served already, until it is closed or lost.
  virtual void ServeToo(uint64_t connection) = 0;

  // At once: what is queued is lost, either way. No event of this connection comes afterwards.
  virtual void Close(uint64_t connection) = 0;

  // "127.0.0.1:7000", "[::1]:7000".
  virtual const std::string& address() const = 0;
  // "127.0.0.1", "[::1]".
  std::string host() const { return address().substr(0, address().rfind(':')); }
  // "manager at 10.0.0.1:51234".
  virtual std::string PeerName(uint64_t connection) const = 0;
};

// The type of OpenControlServer (control_server.h), for which tests pass a function of their own.
using OpenControl = std::function<Result<std::unique_ptr<ControlPort>>(
    const std::string& address, const ControlOptions& options)>;

}  // namespace lamina
