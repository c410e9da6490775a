// The greeting that opens a control connection, as bytes in and bytes out, without a socket. Each
// line is one frame:
//
//   both       -> challenge: u8 1 if this end has a secret, else 0; nonce[32], random
//   connector  -> proof: HMAC-SHA256(secret, label + listener's nonce + connector's nonce), where
//                 the label names the role of the sender
//   listener   -> proof in the same form, with its own label; or "refused", without payload, if the
//                 connector's proof is wrong
//   both       -> hello, as soon as the peer's proof is known to be right
//
// If neither end has a secret, the proofs are left out; if only one has, the greeting fails. A peer
// that has not proved that it knows the secret is told nothing about this end, not even its hello.
// The proofs are bound to the role and to both nonces, so neither a proof sent back to its sender
// nor one of an earlier connection is right. A proof says who the peer is when the connection
// opens; what follows is encrypted and signed only inside TLS.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "transport/control_frame.h"

namespace lamina {

inline constexpr size_t kMaxControlHelloBytes = 4096;
inline constexpr size_t kNonceBytes = 32;

enum class ControlRole { kListener, kConnector };

// One end of one greeting. The caller moves the bytes: it sends TakeOutput(), appends what the peer
// sends, and calls Advance, until that returns something else than kTryAgain. Thread: owner.
class ControlHandshake {
 public:
  struct Options {
    ControlRole role = ControlRole::kConnector;
    std::string hello;
    std::string secret;  // "": none
    std::string nonce;   // kNonceBytes random bytes, never used before
  };

  // From here on TakeOutput has the challenge.
  explicit ControlHandshake(Options options);

  // Returns the bytes for the peer that have been made since the last call. They must be sent even
  // after Advance failed: they may tell the peer why.
  std::string TakeOutput() { return std::exchange(output_, {}); }

  void Append(std::string_view bytes);

  // Handles the bytes that have come. Ok once the peer's hello is there; kTryAgain if more bytes
  // must come. kInvalidArgument if the secrets differ, only one end has one, or the peer speaks
  // TLS; kCorrupt if the peer does not speak this protocol. Must not be called again after an error
  // other than kTryAgain.
  Status Advance();

  // How many bytes the caller may read next. Reading no more leaves the frames after the hello in
  // the socket, for the connection.
  size_t missing_bytes() const { return decoder_.missing_bytes(); }

  const std::string& peer_hello() const { return peer_hello_; }  // REQUIRES: Advance returned ok

 private:
  Status Handle(const ControlFrame& frame);
  Status HandleChallenge(const std::string& payload);
  Status HandleProof(const ControlFrame& frame);
  Result<std::string> ProofOf(ControlRole role) const;
  void Say(uint16_t type, std::string_view payload);

  const Options options_;
  ControlFrameDecoder decoder_{kMaxControlHelloBytes};
  std::optional<char> first_byte_;  // the first byte from the peer
  uint16_t expected_type_ = kControlChallenge;
  std::string peer_nonce_;
  std::string peer_hello_;
  bool done_ = false;
  std::string output_;
};

}  // namespace lamina
