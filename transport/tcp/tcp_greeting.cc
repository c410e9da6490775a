#include "transport/tcp/tcp_greeting.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <cstring>

namespace lamina {
namespace {

using boost::system::error_code;
namespace asio = boost::asio;

}  // namespace

Status SendTcpGreeting(Tcp::socket& socket, const EndpointOptions& options) {
  TcpGreeting greeting;
  greeting.hello_bytes = static_cast<uint16_t>(options.hello.size());
  greeting.window_bytes = options.window_bytes;
  const std::array<asio::const_buffer, 2> parts = {asio::buffer(&greeting, sizeof(greeting)),
                                                   asio::buffer(options.hello)};
  error_code error;
  const size_t written = socket.write_some(parts, error);
  if (error) return PeerLost("sending the greeting: " + error.message());
  if (written != asio::buffer_size(parts))
    return PeerLost("sending the greeting: the socket's buffer is full");
  return OkStatus();
}

Status TcpGreetingReader::Fill(Tcp::socket& socket, char* into, size_t bytes) {
  while (have_bytes_ < bytes) {
    error_code error;
    have_bytes_ += socket.read_some(asio::buffer(into + have_bytes_, bytes - have_bytes_), error);
    if (error == asio::error::would_block) return TryAgain("no greeting came");
    if (error == asio::error::eof) return PeerLost("the peer broke off the handshake");
    if (error) return PeerLost("reading the greeting: " + error.message());
  }
  have_bytes_ = 0;
  return OkStatus();
}

Status TcpGreetingReader::Check() const {
  if (greeting_.magic != kTcpMagic)
    return PeerLost("the peer does not speak lamina's tcp transport");
  if (greeting_.version != kTcpVersion) {
    return PeerLost("the peer speaks version " + std::to_string(greeting_.version) +
                    " of the tcp transport, this end version " + std::to_string(kTcpVersion));
  }
  if (greeting_.hello_bytes > kMaxHelloBytes) {
    return PeerLost("the peer's hello has " + std::to_string(greeting_.hello_bytes) +
                    " bytes; at most " + std::to_string(kMaxHelloBytes));
  }
  return OkStatus();
}

Status TcpGreetingReader::Advance(Tcp::socket& socket) {
  if (!have_header_) {
    LAMINA_RETURN_IF_ERROR(Fill(socket, reinterpret_cast<char*>(&greeting_), sizeof(greeting_)));
    LAMINA_RETURN_IF_ERROR(Check());
    have_header_ = true;
    hello_.resize(greeting_.hello_bytes);
  }
  return Fill(socket, hello_.data(), hello_.size());
}

}  // namespace lamina
