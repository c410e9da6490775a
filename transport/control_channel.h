// The control channel: framed messages over TCP between the manager and its nodes. Orders, results,
// membership; never tensors.
//
// With certificates everything goes inside TLS (tls_stream.h). A connection opens with a greeting
// (control_handshake.h), in which both ends prove the cluster's secret if they have one. Off the
// loopback there must be certificates or a secret. A peer that fails either is dropped and learns
// nothing.
//
// Frame: u32 magic "LMNA", u16 protocol version, u16 type, u32 payload bytes, payload;
// little-endian. Types below kFirstUserType belong to the channel (greeting, heartbeat, goodbye),
// the others to the user, who puts serialised protobuf messages into them. A frame with another
// magic or version, or larger than kMaxFrameBytes, ends the connection with kCorrupt that says what
// was received and what was expected.
//
// Each connection has a thread of its own that reads, answers and sends heartbeats: it notices a
// peer that died (reset), hangs as a whole or sits behind a cut cable (no heartbeat for
// `peer_timeout`).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace lamina {

inline constexpr uint16_t kControlVersion = 3;
inline constexpr uint16_t kFirstUserType = 16;
inline constexpr size_t kMaxFrameBytes = size_t{64} << 20;

struct ControlFrame {
  uint16_t type = 0;
  std::string payload;
};

class TlsContext;

struct ControlOptions {
  std::string hello;  // who this end is, for messages: "manager", "memory node m0"
  Clock::duration heartbeat = std::chrono::seconds(1);
  // Silence after which the peer counts as lost.
  Clock::duration peer_timeout = std::chrono::seconds(10);
  // The next two say who may be the peer. Without either only processes of this machine can be, on
  // the loopback.
  // The cluster's secret (secret_file.h), the same at both ends; "": none.
  std::string secret = {};
  // This end's certificate (tls_context.h), shared by its connections. Both ends have one, or none.
  std::shared_ptr<const TlsContext> tls = nullptr;
  // ConnectControl gives up soon after this returns true; null: it goes on until its deadline.
  std::function<bool()> interrupted = nullptr;
};

// One peer. Thread: any for Send; callbacks come from the connection's own thread and must not
// block or destroy the connection.
class ControlConnection {
 public:
  struct Callbacks {
    std::function<void(ControlFrame)> on_frame;
    // Called at most once, and no callback after it, with kPeerLost, kTimeout or kCorrupt and a
    // message that names the peer. Not called after Close.
    std::function<void(Status)> on_lost;
    // Called when more of a frame has come, and not all of it, with the bytes that are held of it.
    // With on_frame there are none at first. May be empty.
    std::function<void(size_t)> on_partial = {};
  };

  // Closes at once: what is queued may be lost. No callback runs after it.
  virtual ~ControlConnection() = default;

  // Callbacks begin with this call; frames that came before it are kept. REQUIRES: called once.
  virtual void Start(Callbacks callbacks) = 0;

  // From now on a frame of the peer with a larger payload ends the connection. The limit is
  // kMaxFrameBytes before the first call, and never more. Thread: any.
  virtual void LimitFrames(size_t max_payload_bytes) = 0;

  // Closes as the destructor does, soon and without waiting; no callback begins after it returns.
  // Thread: any, also a callback's.
  virtual void Abort() = 0;

  // Queues one frame. kPeerLost once the peer is gone; kOutOfSpace if it has more than 256 MiB
  // unsent; kInvalidArgument for a type below kFirstUserType or a payload above kMaxFrameBytes.
  virtual Status Send(uint16_t type, std::string payload) = 0;

  // Sends what is queued, says goodbye, waits until the peer has read it and closes, all until
  // `deadline`. What still comes from the peer is dropped. No callback runs after it returns.
  virtual void Close(Deadline deadline) = 0;

  // Made Printable (base/printable.h), and of 100 bytes at most.
  virtual const std::string& peer_hello() const = 0;
  virtual const std::string& peer_address() const = 0;
};

// Accepts connections on a thread of its own until destroyed.
class ControlListener {
 public:
  virtual ~ControlListener() = default;

  // "host:port" with the port really bound.
  virtual const std::string& address() const = 0;

  // `on_accept` runs on the listener's thread, once per peer that greeted in time; it must not
  // destroy the listener. kInvalidArgument for an address that cannot be parsed, or off the
  // loopback without secret and certificate; kNotFound if its host is unknown; kOutOfSpace "port in
  // use" names the address.
  static Result<std::unique_ptr<ControlListener>> Create(
      const std::string& address, const ControlOptions& options,
      std::function<void(std::unique_ptr<ControlConnection>)> on_accept);
};

// Blocks until connected and greeted, or `deadline`; retries while the connection is refused. The
// error names address and cause; kTryAgain: interrupted; kInvalidArgument: the secrets are not the
// same, one end refuses the other's certificate, only one has TLS, or the peer is off the loopback
// and there is neither secret nor certificate.
Result<std::unique_ptr<ControlConnection>> ConnectControl(const std::string& address,
                                                          const ControlOptions& options,
                                                          Deadline deadline);

}  // namespace lamina
