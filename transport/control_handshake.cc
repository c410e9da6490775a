#include "transport/control_handshake.h"

#include "transport/crypto.h"

namespace lamina {
namespace {

// Part of what a proof signs, so that a proof means one thing only. The nonces behind a label have
// a fixed length, so no two messages are the same bytes.
constexpr std::string_view kListenerLabel = "lamina control channel 2: proof of the listening end ";
constexpr std::string_view kConnectorLabel =
    "lamina control channel 2: proof of the connecting end ";

// The first byte of a TLS record with an alert or a handshake message (RFC 8446, section 5.1). No
// control frame begins with it.
constexpr char kTlsAlert = 21;
constexpr char kTlsHandshake = 22;

ControlRole Other(ControlRole role) {
  return role == ControlRole::kListener ? ControlRole::kConnector : ControlRole::kListener;
}

}  // namespace

ControlHandshake::ControlHandshake(Options options) : options_(std::move(options)) {
  Say(kControlChallenge, (options_.secret.empty() ? '\0' : '\1') + options_.nonce);
}

void ControlHandshake::Say(uint16_t type, std::string_view payload) {
  const auto header = EncodeControlHeader(type, static_cast<uint32_t>(payload.size()));
  output_.append(header.data(), header.size()).append(payload);
}

Result<std::string> ControlHandshake::ProofOf(ControlRole role) const {
  const bool listens = options_.role == ControlRole::kListener;
  std::string message(role == ControlRole::kListener ? kListenerLabel : kConnectorLabel);
  message += listens ? options_.nonce : peer_nonce_;
  message += listens ? peer_nonce_ : options_.nonce;
  return HmacSha256(options_.secret, message);
}

void ControlHandshake::Append(std::string_view bytes) {
  if (!first_byte_.has_value() && !bytes.empty()) first_byte_ = bytes[0];
  decoder_.Append(bytes);
}

Status ControlHandshake::Advance() {
  if (first_byte_ == kTlsAlert || first_byte_ == kTlsHandshake) {
    return InvalidArgument(
        "the peer speaks TLS, and this end was given no certificate: pass --tls-certificate, "
        "--tls-key and --tls-ca to every daemon, or "
        "set "
        "cluster.tls in the cluster YAML");
  }
  while (!done_) {
    LAMINA_ASSIGN_OR_RETURN(const ControlFrame frame, decoder_.Next());
    LAMINA_RETURN_IF_ERROR(Handle(frame));
  }
  return OkStatus();
}

Status ControlHandshake::Handle(const ControlFrame& frame) {
  if (expected_type_ == kControlProof) return HandleProof(frame);
  if (frame.type != expected_type_) {
    return Corrupt("the peer sent a frame of type " + std::to_string(frame.type) +
                   " while greeting, expected type " + std::to_string(expected_type_));
  }
  if (expected_type_ == kControlChallenge) return HandleChallenge(frame.payload);
  peer_hello_ = frame.payload;
  done_ = true;
  return OkStatus();
}

Status ControlHandshake::HandleChallenge(const std::string& payload) {
  if (payload.size() != 1 + kNonceBytes || static_cast<unsigned char>(payload[0]) > 1) {
    return Corrupt("the peer's challenge is malformed: " + std::to_string(payload.size()) +
                   " bytes, expected " + std::to_string(1 + kNonceBytes));
  }
  const bool peer_has_secret = payload[0] == 1;
  if (peer_has_secret && options_.secret.empty()) {
    return InvalidArgument(
        "the peer wants proof of the cluster secret, and this end was given none: pass the same "
        "--secret-file to every daemon, or set "
        "cluster.secret_file in the cluster YAML");
  }
  if (!peer_has_secret && !options_.secret.empty()) {
    return InvalidArgument(
        "the peer was given no cluster secret, and this end was: pass the same --secret-file to "
        "every daemon, or set cluster.secret_file "
        "in the cluster YAML");
  }
  peer_nonce_ = payload.substr(1);
  expected_type_ = peer_has_secret ? kControlProof : kControlHello;
  if (!peer_has_secret) {
    Say(kControlHello, options_.hello);
  } else if (options_.role == ControlRole::kConnector) {
    LAMINA_ASSIGN_OR_RETURN(const std::string proof, ProofOf(ControlRole::kConnector));
    Say(kControlProof, proof);
  }
  return OkStatus();
}

Status ControlHandshake::HandleProof(const ControlFrame& frame) {
  const bool listens = options_.role == ControlRole::kListener;
  if (!listens && frame.type == kControlRefused) {
    return InvalidArgument(
        "the peer refused this end's proof: it has another cluster secret; copy the same secret "
        "file to every node");
  }
  if (frame.type != kControlProof) {
    return Corrupt("the peer sent a frame of type " + std::to_string(frame.type) +
                   " instead of its proof of the cluster secret");
  }
  LAMINA_ASSIGN_OR_RETURN(const std::string expected, ProofOf(Other(options_.role)));
  if (!EqualInConstantTime(frame.payload, expected)) {
    // The connector proves first, so a listener that refuses has not given its own proof.
    if (listens) Say(kControlRefused, "");
    return InvalidArgument(
        "the peer's proof is wrong: it has another cluster secret; copy the same secret file to "
        "every node");
  }
  if (listens) {
    LAMINA_ASSIGN_OR_RETURN(const std::string proof, ProofOf(ControlRole::kListener));
    Say(kControlProof, proof);
  }
  Say(kControlHello, options_.hello);
  expected_type_ = kControlHello;
  return OkStatus();
}

}  // namespace lamina
