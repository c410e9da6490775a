#include "transport/tcp_socket.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <charconv>

#include "transport/posix.h"

namespace lamina {
namespace {

using boost::system::error_code;

// One address of a name gets this long before the next is tried: a name may have addresses that
// lead nowhere.
constexpr auto kConnectAttempt = std::chrono::seconds(3);

Result<Tcp::resolver::results_type> Resolve(boost::asio::io_context& context,
                                            const std::string& address,
                                            Tcp::resolver::resolver_base::flags flags) {
  LAMINA_ASSIGN_OR_RETURN(const HostPort parts, ParseHostPort(address));
  error_code error;
  Tcp::resolver resolver(context);
  auto found =
      resolver.resolve(parts.host, parts.port, flags | Tcp::resolver::numeric_service, error);
  if (error || found.empty())
    return NotFound("address \"" + address + "\": host \"" + parts.host + "\": " + error.message());
  return found;
}

std::string ConnectCall(const Tcp::endpoint& peer) { return "connect to " + AddressText(peer); }

bool SetOption(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

}  // namespace

Result<HostPort> ParseHostPort(std::string_view address) {
  const auto invalid = [&](std::string_view why) {
    return InvalidArgument("address \"" + std::string(address) + "\": " + std::string(why) +
                           "; expected host:port, e.g. 10.0.0.1:7000");
  };
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return invalid("no port");
  std::string_view host = address.substr(0, colon);
  const std::string_view port = address.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']') && host.size() > 2) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of(":[]") != std::string_view::npos) {
    return invalid("an IPv6 host stands in brackets");
  }
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number > 65535)
    return invalid("the port is not a number below 65536");
  return HostPort{std::string(host), std::to_string(number)};
}

Result<Tcp::acceptor> ListenTcp(boost::asio::io_context& context, const std::string& address) try {
  LAMINA_ASSIGN_OR_RETURN(const auto found, Resolve(context, address, Tcp::resolver::passive));
  const Tcp::endpoint endpoint = found.begin()->endpoint();
  Tcp::acceptor acceptor(context);
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  // A restarted daemon may listen while connections of the one before are in TIME_WAIT.
  if (!error) acceptor.set_option(Tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.non_blocking(true, error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(Tcp::acceptor::max_listen_connections, error);
  if (error == boost::asio::error::address_in_use) return OutOfSpace("port in use: " + address);
  const std::string what = "cannot listen on " + address + ": " + error.message();
  using boost::system::errc::errc_t;
  for (const errc_t exhausted : {errc_t::too_many_files_open, errc_t::too_many_files_open_in_system,
                                 errc_t::no_buffer_space, errc_t::not_enough_memory}) {
    if (error == exhausted) return OutOfSpace(what);
  }
  if (error) return InvalidArgument(what);
  return acceptor;
} catch (const boost::system::system_error& error) {  // the context takes descriptors at first use
  return OutOfSpace("cannot listen on " + address + ": " + error.what());
}

std::string BoundAddress(const Tcp::acceptor& acceptor) {
  error_code error;
  return AddressText(acceptor.local_endpoint(error));
}

std::string BoundAddress(const Tcp::acceptor& acceptor, const std::string& address) {
  error_code error;
  const std::string host = address.substr(0, address.rfind(':'));
  return (host.empty() ? "0.0.0.0" : host) + ":" +
         std::to_string(acceptor.local_endpoint(error).port());
}

Result<Tcp::socket> TcpConnector::Poll() {
  while (true) {
    if (!socket_.is_open()) LAMINA_RETURN_IF_ERROR(BeginAttempt());
    if (!WaitForFd(fd(), POLLOUT, Deadline(Clock::now())) && !attempt_ends_.Passed())
      return TryAgain();
    const Status outcome = Outcome();
    entry_.reset();
    Tcp::socket socket = std::move(socket_);  // closed below if it was for nothing
    if (outcome.ok()) return socket;
    NoteFailure(outcome);
  }
}

Status TcpConnector::BeginAttempt() {
  while (true) {
    if (next_ == peers_.size()) LAMINA_RETURN_IF_ERROR(BeginRound());
    if (next_ == peers_.size()) continue;
    const Status begun = Begin(peers_[next_++]);
    if (begun.code() != StatusCode::kTryAgain) return begun;
    NoteFailure(begun);
  }
}

// A name that is not known yet is a peer that is not there yet: service names appear when their
// container starts.
Status TcpConnector::BeginRound() {
  if (!last_.ok() && deadline_.Passed()) return TimedOut(address_ + ": " + last_.message());
  if (Clock::now() < next_round_) return TryAgain();
  const auto found = Resolve(context_, address_, Tcp::resolver::resolver_base::flags());
  if (!found.ok() && found.status().code() != StatusCode::kNotFound) return found.status();
  if (!found.ok()) {
    NoteFailure(found.status());
    return OkStatus();
  }
  peers_.clear();
  for (const auto& entry : *found) peers_.push_back(entry.endpoint());
  next_ = 0;
  return OkStatus();
}

Status TcpConnector::Begin(const Tcp::endpoint& peer) {
  error_code error;
  socket_.open(peer.protocol(), error);
  if (error) return OutOfSpace("socket: " + error.message());
  LAMINA_RETURN_IF_ERROR(TuneSocket(socket_));
  // Not socket_.connect: it waits without a deadline even on a non-blocking socket.
  if (connect(fd(), peer.data(), static_cast<socklen_t>(peer.size())) != 0 &&
      errno != EINPROGRESS) {
    const int cause = errno;
    socket_.close(error);
    return TryAgain(ErrnoText(ConnectCall(peer), cause));
  }
  if (poll_set_ != nullptr) entry_.emplace(*poll_set_, fd(), EPOLLOUT);
  attempt_ends_ = deadline_.NoLaterThan(Clock::now() + kConnectAttempt);
  return OkStatus();
}

Status TcpConnector::Outcome() {
  const Tcp::endpoint& peer = peers_[next_ - 1];
  if (!WaitForFd(fd(), POLLOUT, Deadline(Clock::now())))
    return TryAgain(ConnectCall(peer) + ": no answer");
  int cause = 0;
  socklen_t size = sizeof(cause);
  getsockopt(fd(), SOL_SOCKET, SO_ERROR, &cause, &size);
  // Where nobody listens at a free port of this machine, the kernel may give this socket that very
  // port as its own, and it connects to itself (TCP's simultaneous open).
  error_code error;
  if (cause == 0 && socket_.local_endpoint(error) == peer) cause = ECONNREFUSED;
  return cause == 0 ? OkStatus() : TryAgain(ErrnoText(ConnectCall(peer), cause));
}

void TcpConnector::NoteFailure(const Status& why) {
  last_ = why;
  next_round_ = Clock::now() + kRetryPause;
}

Result<Tcp::socket> ConnectTcp(boost::asio::io_context& context, const std::string& address,
                               Deadline deadline, const std::function<bool()>& interrupted) {
  TcpConnector connector(context, address, deadline);
  while (true) {
    Result<Tcp::socket> socket = connector.Poll();
    if (socket.status().code() != StatusCode::kTryAgain) return socket;
    if (interrupted && interrupted()) return TryAgain(address + ": interrupted");
    WaitForFd(connector.fd(), POLLOUT, deadline.NoLaterThan(connector.wake_at()));
  }
}

Status TuneSocket(int socket) {
  const int flags = fcntl(socket, F_GETFL);
  const bool set = flags >= 0 && fcntl(socket, F_SETFL, flags | O_NONBLOCK) == 0 &&
                   SetOption(socket, IPPROTO_TCP, TCP_NODELAY, 1) &&
                   // In seconds: the first probe after 5, then 5 probes 2 apart, which makes 15.
                   SetOption(socket, SOL_SOCKET, SO_KEEPALIVE, 1) &&
                   SetOption(socket, IPPROTO_TCP, TCP_KEEPIDLE, 5) &&
                   SetOption(socket, IPPROTO_TCP, TCP_KEEPINTVL, 2) &&
                   SetOption(socket, IPPROTO_TCP, TCP_KEEPCNT, 5) &&
                   SetOption(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 60'000);  // ms
  return set ? OkStatus() : PeerLost(ErrnoText("setsockopt"));
}

Status TuneSocket(Tcp::socket& socket) {
  error_code error;
  // Set through Asio too: on a socket that it takes for a blocking one it would wait.
  socket.non_blocking(true, error);
  if (error) return PeerLost("socket options: " + error.message());
  return TuneSocket(socket.native_handle());
}

std::string AddressText(const Tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  const std::string port = std::to_string(endpoint.port());
  return endpoint.address().is_v6() ? "[" + host + "]:" + port : host + ":" + port;
}

}  // namespace lamina
