#include "api/http_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/log.h"
#include "transport/tls_stream.h"

namespace lamina {
namespace {

Result<size_t> CountOf(ssize_t result, const char* call) {
  if (result >= 0) return static_cast<size_t>(result);
  return errno == EAGAIN || errno == EINTR ? TryAgain() : PeerLost(ErrnoText(call));
}

}  // namespace

HttpStream::HttpStream(boost::asio::ip::tcp::socket socket, std::shared_ptr<const TlsContext> tls)
    : socket_(std::move(socket)) {
  if (tls == nullptr) return;
  boost::system::error_code error;
  socket_.native_non_blocking(true, error);
  Result<std::unique_ptr<ControlStream>> stream =
      MakeTlsStream(UniqueFd(socket_.native_handle()), ControlRole::kListener, "", std::move(tls));
  if (stream.ok()) {
    tls_ = *std::move(stream);
    return;
  }
  // Out of memory. Its descriptor was closed with the stream.
  LAMINA_LOG_WARN("cannot serve a client: {}", stream.status().message());
  socket_.release(error);
}

Result<size_t> HttpStream::ReadNow(std::span<char> into) {
  if (tls_ != nullptr && !heard_) {
    char first = 0;
    const ssize_t got = recv(tls_->fd(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got <= 0) return CountOf(got, "read");
    heard_ = true;
    lacks_tls_ = first >= 'A' && first <= 'Z';  // as the methods of HTTP begin, and no TLS record
  }
  if (tls_ != nullptr && !lacks_tls_) return tls_->Read(into);
  return CountOf(recv(socket_.native_handle(), into.data(), into.size(), MSG_DONTWAIT), "read");
}

Result<size_t> HttpStream::WriteNow(std::string_view bytes) {
  if (tls_ != nullptr && !lacks_tls_) return tls_->Write(bytes, {});
  return CountOf(
      send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL),
      "write");
}

HttpStream::Wait HttpStream::Awaited(Wait wait) const {
  if (tls_ == nullptr || lacks_tls_ || !heard_) return wait;
  return tls_->wanted_events() == POLLIN ? Wait::wait_read : Wait::wait_write;
}

void HttpStream::EndOutput() {
  if (tls_ != nullptr && !lacks_tls_) return tls_->EndOutput();
  boost::system::error_code ignored;
  socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
}

void HttpStream::Close() {
  boost::system::error_code ignored;
  if (tls_ == nullptr) {
    socket_.close(ignored);
    return;
  }
  socket_.release(ignored);
  tls_ = nullptr;
}

}  // namespace lamina
