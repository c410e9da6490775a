#include "transport/control_greeting.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace lamina {

Status CheckControlOptions(const ControlOptions& options) {
  if (options.hello.size() > kMaxControlHelloBytes) {
    return InvalidArgument("hello of " + std::to_string(options.hello.size()) + " bytes; at most " + std::to_string(kMaxControlHelloBytes));
  }
  if (options.heartbeat <= Clock::duration::zero() || options.peer_timeout <= options.heartbeat) {
    return InvalidArgument("the heartbeat interval must be positive and shorter than the peer timeout");
  }
  return OkStatus();
}

Status SendControlHello(int socket, const std::string& hello) {
  const auto header = EncodeControlHeader(kControlHello, static_cast<uint32_t>(hello.size()));
  const std::string bytes = std::string(header.data(), header.size()) + hello;
  const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent < 0) return PeerLost(ErrnoText("sending the hello"));
  if (static_cast<size_t>(sent) != bytes.size()) return PeerLost("sending the hello: the socket's buffer is full");
  return OkStatus();
}

Status ControlHelloReader::Advance(int socket) {
  while (true) {
    Result<ControlFrame> frame = decoder_.Next();
    if (frame.ok()) {
      if (frame->type != kControlHello)
        return Corrupt("the peer began with a frame of type " + std::to_string(frame->type) + ", expected its hello");
      hello_ = std::move(frame->payload);
      return OkStatus();
    }
    if (frame.status().code() != StatusCode::kTryAgain) return frame.status();
    std::array<char, kMaxControlHelloBytes> buffer;
    const ssize_t got = recv(socket, buffer.data(), std::min(buffer.size(), decoder_.missing_bytes()), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return TryAgain("no hello came");
    if (got < 0) return PeerLost(ErrnoText("reading the hello"));
    if (got == 0) return PeerLost("the peer closed the connection before its hello");
    decoder_.Append({buffer.data(), static_cast<size_t>(got)});
  }
}

}  // namespace lamina
