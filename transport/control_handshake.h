// How a control connection opens, as bytes in and bytes out, without a socket. Each arrow is one
// frame:
//
//   both       -> challenge: u8 1 if this end has a secret, else 0; nonce[32], random
//   connector  -> proof: HMAC-SHA256(secret, role label of the sender + listener's nonce +
//   connector's nonce) listener   -> proof, likewise; or "refused", no payload, if the connector's
//   is wrong both       -> hello, as soon as the peer's proof was right
//
// Without secrets the proofs are left out; ends of which only one has a secret part. Nothing of
// this end, not even its hello, is told to a peer that has not proved the secret. The proofs are
// bound to the role and to both nonces: neither a proof that comes back to its sender nor one of an
// earlier connection is right. They say who the peer is when the connection opens; what follows is
// encrypted and signed only inside TLS.
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

// Thread: owner.
class ControlHandshake {
 public:
  struct Options {
    ControlRole role = ControlRole::kConnector;
    std::string hello;
    std::string secret;  // "": none
    std::string nonce;   // kNonceBytes random bytes, never used before
  };

  // TakeOutput has the challenge at once.
  explicit ControlHandshake(Options options);

  // Bytes for the peer since the last call. To be sent whatever Advance said: they may tell the
  // peer why it failed.
  std::string TakeOutput() { return std::exchange(output_, {}); }

  void Append(std::string_view bytes);

  // Goes on with what came: ok once the peer's hello is there, kTryAgain when more must come.
  // kInvalidArgument: the secrets are not the same, one end has none, or the peer speaks TLS;
  // kCorrupt: the peer does not speak this protocol. After an error it must not be called again.
  Status Advance();

  // At most so many bytes may be read next: none of them belongs to the frames after the hello.
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
  std::optional<char> first_byte_;  // from the peer
  uint16_t expected_type_ = kControlChallenge;
  std::string peer_nonce_;
  std::string peer_hello_;
  bool done_ = false;
  std::string output_;
};

}  // namespace lamina
