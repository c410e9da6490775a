// Opens a control connection over a socket: makes its stream (plain TCP or TLS), runs the greeting
// of control_handshake.h over it, and decides whether a secret or a certificate is needed.
#pragma once

#include <string>

#include "transport/control_stream.h"

namespace lamina {

// kInvalidArgument if the hello is longer than kMaxControlHelloBytes, there is a secret shorter
// than kMinSecretBytes, the heartbeat is not positive, or the peer timeout is not longer than the
// heartbeat.
Status CheckControlOptions(const ControlOptions& options);

// Only processes of this machine reach a listener on the loopback; at any other address both ends
// need a secret or certificates. kInvalidArgument if `options` has neither and `socket` listens at,
// or is connected to, an address off the loopback; the message says how to make a secret.
Status CheckListenerProof(int socket, const std::string& address, const ControlOptions& options);
Status CheckConnectorProof(int socket, const ControlOptions& options);

// The stream that `options` ask for, inside TLS if they have a certificate; it owns `socket`.
// Inside TLS a connector accepts only a peer whose certificate is for `host`; a listener ignores
// `host`. kInvalidArgument and kInternal as MakeTlsStream returns them. REQUIRES: `socket` is
// connected and non-blocking.
Result<std::unique_ptr<ControlStream>> MakeControlStream(UniqueFd socket, ControlRole role,
                                                         const std::string& host,
                                                         const ControlOptions& options);

// One end of one greeting over one stream. Can be moved. Thread: owner.
class ControlGreeting {
 public:
  // kInternal if the system has no random bytes for the nonce.
  static Result<ControlGreeting> Create(ControlRole role, const ControlOptions& options);

  // Continues the stream's handshake, then the greeting, without waiting: sends what is due, which
  // always fits into the buffer of a fresh socket, and reads what came, but no byte beyond the
  // peer's hello. Ok once complete; kTryAgain until the stream's wanted_events() come.
  // kInvalidArgument if one end refuses the other's certificate or secret; kCorrupt if the peer
  // does not speak the protocol; kPeerLost if it is gone.
  Status Advance(ControlStream& stream);

  // REQUIRES: Advance returned ok.
  const std::string& peer_hello() const { return handshake_.peer_hello(); }

 private:
  explicit ControlGreeting(ControlHandshake handshake) : handshake_(std::move(handshake)) {}
  Status SendOutput(ControlStream& stream);

  ControlHandshake handshake_;
};

}  // namespace lamina
