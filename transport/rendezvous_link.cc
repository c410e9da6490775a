// RendezvousLink: what goes over the socket of a rendezvous. Everything that a peer sends is
// checked.
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <cerrno>

#include "transport/posix.h"
#include "transport/rendezvous.h"

namespace lamina {
namespace {

using boost::system::error_code;
namespace asio = boost::asio;
using std::to_string;

constexpr char kReady = 'R';

std::array<char, 8> KindField(std::string_view kind) {
  std::array<char, 8> field = {};
  std::copy_n(kind.begin(), std::min(kind.size(), field.size()), field.begin());
  return field;
}

// The kind that a peer has sent, for messages. Characters that cannot be printed are left out: the
// peer is not trusted.
std::string KindText(const std::array<char, 8>& field) {
  std::string text;
  for (const char c : field) {
    if (c > ' ' && c < 127) text += c;
  }
  return text;
}

}  // namespace

asio::ip::address Unwrapped(const asio::ip::address& address) {
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address;
  return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
}

Status RendezvousLink::Send(const void* first, size_t first_bytes, std::string_view second,
                            std::string_view third) {
  const std::array<asio::const_buffer, 3> parts = {asio::buffer(first, first_bytes),
                                                   asio::buffer(second), asio::buffer(third)};
  error_code error;
  const size_t written = socket_.write_some(parts, error);
  if (error) return PeerLost("sending the greeting: " + error.message());
  if (written != asio::buffer_size(parts))
    return PeerLost("sending the greeting: the socket's buffer is full");
  return OkStatus();
}

Status RendezvousLink::SendGreeting(std::string_view kind, const EndpointOptions& options,
                                    std::string_view offer) {
  if (offer.size() > kMaxOfferBytes) {
    return InternalError("connection data of " + to_string(offer.size()) + " bytes; at most " +
                         to_string(kMaxOfferBytes));
  }
  // Room for twice the largest greeting, which the kernel's default may not hold: Send does not
  // wait.
  error_code ignored;
  socket_.set_option(asio::socket_base::send_buffer_size(
                         2 * (sizeof(RendezvousGreeting) + kMaxHelloBytes + kMaxOfferBytes)),
                     ignored);
  RendezvousGreeting greeting;
  greeting.hello_bytes = static_cast<uint16_t>(options.hello.size());
  greeting.window_bytes = options.window_bytes;
  greeting.kind = KindField(kind);
  greeting.offer_bytes = static_cast<uint32_t>(offer.size());
  return Send(&greeting, sizeof(greeting), options.hello, offer);
}

Status RendezvousLink::SendReady() { return Send(&kReady, sizeof(kReady), {}, {}); }

Status RendezvousLink::Fill(char* into, size_t bytes) {
  while (have_bytes_ < bytes) {
    error_code error;
    have_bytes_ += socket_.read_some(asio::buffer(into + have_bytes_, bytes - have_bytes_), error);
    if (error == asio::error::would_block) return TryAgain("no greeting came");
    if (error == asio::error::eof) return PeerLost("the peer broke off the handshake");
    if (error) return PeerLost("reading the greeting: " + error.message());
  }
  have_bytes_ = 0;
  return OkStatus();
}

Status RendezvousLink::Check(std::string_view kind) const {
  if (greeting_.magic != kRendezvousMagic)
    return PeerLost("the peer does not speak lamina's " + std::string(kind) + " transport");
  if (greeting_.version != kRendezvousVersion) {
    return PeerLost("the peer speaks version " + to_string(greeting_.version) +
                    " of the rendezvous, this end version " + to_string(kRendezvousVersion));
  }
  if (greeting_.kind != KindField(kind)) {
    return PeerLost("the peer uses transport \"" + KindText(greeting_.kind) + "\", this end \"" +
                    std::string(kind) + "\"");
  }
  if (greeting_.hello_bytes > kMaxHelloBytes) {
    return PeerLost("the peer's hello has " + to_string(greeting_.hello_bytes) +
                    " bytes; at most " + to_string(kMaxHelloBytes));
  }
  if (greeting_.offer_bytes > kMaxOfferBytes) {
    return PeerLost("the peer's connection data has " + to_string(greeting_.offer_bytes) +
                    " bytes; at most " + to_string(kMaxOfferBytes));
  }
  return OkStatus();
}

Status RendezvousLink::ReceiveGreeting(std::string_view kind) {
  if (part_ == Part::kHeader) {
    LAMINA_RETURN_IF_ERROR(Fill(reinterpret_cast<char*>(&greeting_), sizeof(greeting_)));
    // Bounds the sizes before memory is allocated for them.
    LAMINA_RETURN_IF_ERROR(Check(kind));
    peer_.window_bytes = greeting_.window_bytes;
    peer_.hello.resize(greeting_.hello_bytes);
    peer_.offer.resize(greeting_.offer_bytes);
    part_ = Part::kHello;
  }
  if (part_ == Part::kHello) {
    LAMINA_RETURN_IF_ERROR(Fill(peer_.hello.data(), peer_.hello.size()));
    part_ = Part::kOffer;
  }
  if (part_ == Part::kOffer) {
    LAMINA_RETURN_IF_ERROR(Fill(peer_.offer.data(), peer_.offer.size()));
    part_ = Part::kReady;
  }
  return OkStatus();
}

Status RendezvousLink::ReceiveReady() {
  char said = 0;
  LAMINA_RETURN_IF_ERROR(Fill(&said, sizeof(said)));
  return said == kReady ? OkStatus()
                        : PeerLost("the peer said something else than that it is ready");
}

Status RendezvousLink::CheckAlive() {
  char byte;
  const ssize_t got = recv(fd(), &byte, sizeof(byte), MSG_DONTWAIT);
  if (got == 0) return PeerLost("the peer closed the connection or its process ended");
  if (got > 0)
    return PeerLost("the peer sent something that does not belong on the rendezvous socket");
  return errno == EAGAIN || errno == EINTR ? OkStatus() : PeerLost(ErrnoText("rendezvous socket"));
}

Result<asio::ip::address> RendezvousLink::LocalAddress() const {
  error_code error;
  const Tcp::endpoint local = socket_.local_endpoint(error);
  if (error) return PeerLost("rendezvous socket: " + error.message());
  return Unwrapped(local.address());
}

}  // namespace lamina
