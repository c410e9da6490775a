#include "transport/control_stream.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>

namespace lamina {
namespace {

class TcpStream final : public ControlStream {
 public:
  explicit TcpStream(UniqueFd socket) : socket_(std::move(socket)) {}

  int fd() const override { return socket_.get(); }
  Status Handshake() override { return OkStatus(); }
  short wanted_events() const override { return POLLIN; }
  bool has_buffered() const override { return false; }

  Result<size_t> Read(std::span<char> into) override {
    const ssize_t got = recv(socket_.get(), into.data(), into.size(), 0);
    if (got >= 0) return static_cast<size_t>(got);
    return errno == EAGAIN || errno == EINTR ? TryAgain() : PeerLost(ErrnoText("read"));
  }

  Result<size_t> Write(std::string_view first, std::string_view second) override {
    iovec parts[2] = {{const_cast<char*>(first.data()), first.size()},
                      {const_cast<char*>(second.data()), second.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<size_t>(sent);
    return errno == EAGAIN || errno == EINTR ? TryAgain() : PeerLost(ErrnoText("write"));
  }

  void EndOutput() override { shutdown(socket_.get(), SHUT_WR); }

 private:
  const UniqueFd socket_;
};

}  // namespace

std::unique_ptr<ControlStream> MakeTcpStream(UniqueFd socket) {
  return std::make_unique<TcpStream>(std::move(socket));
}

}  // namespace lamina
