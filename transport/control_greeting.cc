#include "transport/control_greeting.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "transport/crypto.h"
#include "transport/secret_file.h"
#include "transport/tcp_socket.h"
#include "transport/tls_stream.h"

namespace lamina {
namespace {

// An address of another kind than IPv4 and IPv6 counts as open to all.
bool IsLoopback(const Tcp::endpoint& endpoint) {
  const boost::asio::ip::address address = endpoint.address();
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address.is_loopback();
  return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6())
      .is_loopback();
}

bool HasProof(const ControlOptions& options) {
  return !options.secret.empty() || options.tls != nullptr;
}

std::string HowToGetASecret() {
  return "make a secret with `" + MakeSecretCommand("FILE") +
         "`, copy it to every node, and name it in the cluster YAML as cluster.secret_file "
         "(daemons: --secret-file FILE); for certificates "
         "see docs/tls.md";
}

}  // namespace

Status CheckControlOptions(const ControlOptions& options) {
  if (options.hello.size() > kMaxControlHelloBytes) {
    return InvalidArgument("hello of " + std::to_string(options.hello.size()) + " bytes; at most " +
                           std::to_string(kMaxControlHelloBytes));
  }
  if (options.heartbeat <= Clock::duration::zero() || options.peer_timeout <= options.heartbeat) {
    return InvalidArgument(
        "the heartbeat interval must be positive and shorter than the peer timeout");
  }
  if (!options.secret.empty() && options.secret.size() < kMinSecretBytes) {
    return InvalidArgument("cluster secret of " + std::to_string(options.secret.size()) +
                           " bytes; at least " + std::to_string(kMinSecretBytes));
  }
  return OkStatus();
}

Status CheckListenerProof(int socket, const std::string& address, const ControlOptions& options) {
  Tcp::endpoint bound;
  auto size = static_cast<socklen_t>(bound.capacity());
  if (getsockname(socket, bound.data(), &size) != 0) return PeerLost(ErrnoText("getsockname"));
  if (HasProof(options) || IsLoopback(bound)) return OkStatus();
  return InvalidArgument(
      "refusing to listen on " + address +
      " without a cluster secret or a certificate: it is not the loopback, so whoever reaches it " +
      "could use this node; " + HowToGetASecret());
}

Status CheckConnectorProof(int socket, const ControlOptions& options) {
  Tcp::endpoint peer;
  auto size = static_cast<socklen_t>(peer.capacity());
  if (getpeername(socket, peer.data(), &size) != 0) return PeerLost(ErrnoText("getpeername"));
  if (HasProof(options) || IsLoopback(peer)) return OkStatus();
  return InvalidArgument(
      "refusing to connect without a cluster secret or a certificate: " + AddressText(peer) +
      " is not on the loopback, so anybody could answer there; " + HowToGetASecret());
}

Result<std::unique_ptr<ControlStream>> MakeControlStream(UniqueFd socket, ControlRole role,
                                                         const std::string& host,
                                                         const ControlOptions& options) {
  if (options.tls == nullptr) return MakeTcpStream(std::move(socket));
  return MakeTlsStream(std::move(socket), role, host, options.tls);
}

Result<ControlGreeting> ControlGreeting::Create(ControlRole role, const ControlOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(std::string nonce, RandomBytes(kNonceBytes));
  return ControlGreeting(ControlHandshake({role, options.hello, options.secret, std::move(nonce)}));
}

Status ControlGreeting::SendOutput(ControlStream& stream) {
  const std::string bytes = handshake_.TakeOutput();
  if (bytes.empty()) return OkStatus();
  const Result<size_t> sent = stream.Write(bytes, "");
  if (!sent.ok() && sent.status().code() != StatusCode::kTryAgain)
    return sent.status().WithContext("greeting the peer");
  if (!sent.ok() || *sent != bytes.size())
    return PeerLost("greeting the peer: the socket's buffer is full");
  return OkStatus();
}

Status ControlGreeting::Advance(ControlStream& stream) {
  LAMINA_RETURN_IF_ERROR(stream.Handshake());
  while (true) {
    const Status status = handshake_.Advance();
    // Sent even if the handshake failed: the output may tell the peer why.
    const Status sent = SendOutput(stream);
    if (status.code() != StatusCode::kTryAgain) return status.ok() ? sent : status;
    LAMINA_RETURN_IF_ERROR(sent);
    std::array<char, kMaxControlHelloBytes> buffer;
    const Result<size_t> got =
        stream.Read({buffer.data(), std::min(buffer.size(), handshake_.missing_bytes())});
    if (got.status().code() == StatusCode::kTryAgain) return TryAgain("the peer does not greet");
    if (!got.ok()) return got.status().WithContext("reading the peer's greeting");
    if (*got == 0) return PeerLost("the peer closed the connection before it had greeted");
    handshake_.Append({buffer.data(), *got});
  }
}

}  // namespace lamina
