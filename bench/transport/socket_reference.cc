#include "bench/transport/socket_reference.h"

#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <cerrno>

#include "transport/posix.h"
#include "transport/tcp_socket.h"

namespace lamina {
namespace {

constexpr auto kSocketDeadline = std::chrono::seconds(20);

Status SendBytes(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
      return PeerLost(ErrnoText("socket reference: send"));
    if (sent > 0) bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return OkStatus();
}

Status ReceiveBytes(int fd, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = recv(fd, bytes.data(), bytes.size(), 0);
    if (got == 0) return PeerLost("socket reference: the peer closed the connection");
    if (got < 0 && errno != EAGAIN && errno != EINTR)
      return PeerLost(ErrnoText("socket reference: recv"));
    if (got > 0) bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return OkStatus();
}

Result<TransportSample> PingPong(int fd, const TransportCase& test,
                                 std::vector<std::byte>& message) {
  std::vector<double> seconds;
  for (int i = 0; i < test.warm_up + test.iterations; ++i) {
    const TimePoint start = Clock::now();
    LAMINA_RETURN_IF_ERROR(SendBytes(fd, message));
    LAMINA_RETURN_IF_ERROR(ReceiveBytes(fd, message));
    if (i >= test.warm_up) seconds.push_back(SecondsSince(start));
  }
  return LatencySample(seconds);
}

// Sends `count` messages and waits for the peer's word that it has them all.
Status Stream(int fd, int count, std::span<const std::byte> message) {
  for (int i = 0; i < count; ++i) LAMINA_RETURN_IF_ERROR(SendBytes(fd, message));
  std::byte reply;
  return ReceiveBytes(fd, {&reply, 1});
}

Status TakeStream(int fd, int count, std::span<std::byte> message) {
  for (int i = 0; i < count; ++i) LAMINA_RETURN_IF_ERROR(ReceiveBytes(fd, message));
  const std::byte reply{};
  return SendBytes(fd, {&reply, 1});
}

}  // namespace

Result<TransportSample> RunOverSocket(const TransportCase& test, const std::string& address,
                                      const SpawnPeer& spawn) {
  boost::asio::io_context io;
  LAMINA_ASSIGN_OR_RETURN(Tcp::acceptor acceptor, ListenTcp(io, address));
  LAMINA_ASSIGN_OR_RETURN(ChildProcess peer, spawn(test, BoundAddress(acceptor, address)));
  if (!WaitForFd(acceptor.native_handle(), POLLIN, Deadline::After(kSocketDeadline))) {
    return TimedOut("socket reference: the peer's process did not connect");
  }
  Tcp::socket socket(io);
  boost::system::error_code error;
  acceptor.accept(socket, error);
  if (error) return PeerLost("socket reference: accept: " + error.message());
  LAMINA_RETURN_IF_ERROR(TuneSocket(socket));
  std::vector<std::byte> message(test.bytes);
  for (size_t i = 0; i < message.size(); ++i) message[i] = TransportPattern(i);
  const int fd = socket.native_handle();
  if (test.measure == TransportMeasure::kLatency) return PingPong(fd, test, message);
  LAMINA_RETURN_IF_ERROR(Stream(fd, test.warm_up, message));
  const TimePoint start = Clock::now();
  LAMINA_RETURN_IF_ERROR(Stream(fd, test.iterations, message));
  return BandwidthSample(test, SecondsSince(start));
}

Status ServeOverSocket(const TransportCase& test, const std::string& address) {
  boost::asio::io_context io;
  LAMINA_ASSIGN_OR_RETURN(Tcp::socket socket,
                          ConnectTcp(io, address, Deadline::After(kSocketDeadline)));
  std::vector<std::byte> message(test.bytes);
  const int fd = socket.native_handle();
  if (test.measure == TransportMeasure::kBandwidth) {
    LAMINA_RETURN_IF_ERROR(TakeStream(fd, test.warm_up, message));
    return TakeStream(fd, test.iterations, message);
  }
  for (int i = 0; i < test.warm_up + test.iterations; ++i) {
    LAMINA_RETURN_IF_ERROR(ReceiveBytes(fd, message));
    LAMINA_RETURN_IF_ERROR(SendBytes(fd, message));
  }
  return OkStatus();
}

}  // namespace lamina
