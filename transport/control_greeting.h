// The greeting that opens a control connection (control_handshake.h), over a stream; the stream
// that it goes over; and who needs a secret or a certificate for it.
#pragma once

#include <string>

#include "transport/control_stream.h"

namespace lamina {

// kInvalidArgument if the hello is too long, the secret shorter than kMinSecretBytes, or a duration
// is not positive.
Status CheckControlOptions(const ControlOptions& options);

// Only this machine reaches a listener on the loopback: off it, both ends need a secret or
// certificates. kInvalidArgument if `options` has neither and the socket listens on, or is
// connected to, another address. The message says how a secret is made.
Status CheckListenerProof(int socket, const std::string& address, const ControlOptions& options);
Status CheckConnectorProof(int socket, const ControlOptions& options);

// The stream that `options` ask for, over a connected and non-blocking socket. `host`: as in
// MakeTlsStream.
Result<std::unique_ptr<ControlStream>> MakeControlStream(UniqueFd socket, ControlRole role,
                                                         const std::string& host,
                                                         const ControlOptions& options);

// One end of one greeting. Thread: owner.
class ControlGreeting {
 public:
  static Result<ControlGreeting> Create(ControlRole role, const ControlOptions& options);

  // Goes on with the stream's handshake, then sends what is due, which always fits into a fresh
  // socket's buffer, and reads what came, but no byte beyond the peer's hello. Ok when complete;
  // kTryAgain when the stream's wanted_events() must come; else kPeerLost, or as
  // ControlStream::Handshake and ControlHandshake::Advance.
  Status Advance(ControlStream& stream);

  // REQUIRES: Advance returned ok.
  const std::string& peer_hello() const { return handshake_.peer_hello(); }

 private:
  explicit ControlGreeting(ControlHandshake handshake) : handshake_(std::move(handshake)) {}
  Status SendOutput(ControlStream& stream);

  ControlHandshake handshake_;
};

}  // namespace lamina
