#include "transport/tcp_socket.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
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

// Connects `socket` to one address. kTryAgain if that is refused or unreachable at the moment.
Status TryConnect(Tcp::socket& socket, const Tcp::endpoint& endpoint, Deadline deadline) {
  error_code error;
  socket.open(endpoint.protocol(), error);
  if (error) return OutOfSpace("socket: " + error.message());
  LAMINA_RETURN_IF_ERROR(TuneSocket(socket));
  // Not socket.connect: it waits without a deadline even on a non-blocking socket.
  const int fd = socket.native_handle();
  const std::string call = "connect to " + AddressText(endpoint);
  const int result = connect(fd, endpoint.data(), static_cast<socklen_t>(endpoint.size()));
  if (result != 0 && errno != EINPROGRESS) return TryAgain(ErrnoText(call));
  const Deadline attempt = deadline.NoLaterThan(Clock::now() + kConnectAttempt);
  if (!WaitForFd(fd, POLLOUT, attempt)) return TryAgain(call + ": no answer");
  int cause = 0;
  socklen_t size = sizeof(cause);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &cause, &size);
  // Where nobody listens at a free port of this machine, the kernel may give this socket that very
  // port as its own, and it connects to itself (TCP's simultaneous open).
  if (cause == 0 && socket.local_endpoint(error) == endpoint) cause = ECONNREFUSED;
  if (cause == 0) return OkStatus();
  return TryAgain(ErrnoText(call, cause));
}

// Tries every address that the name has at the moment once.
Result<Tcp::socket> TryConnectAny(boost::asio::io_context& context, const std::string& address,
                                  Deadline deadline) {
  LAMINA_ASSIGN_OR_RETURN(const auto found,
                          Resolve(context, address, Tcp::resolver::resolver_base::flags()));
  Status last;
  for (const auto& entry : found) {
    Tcp::socket socket(context);
    last = TryConnect(socket, entry.endpoint(), deadline);
    if (last.ok()) return socket;
  }
  return last;
}

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

std::string BoundAddress(const Tcp::acceptor& acceptor, const std::string& address) {
  error_code error;
  const std::string host = address.substr(0, address.rfind(':'));
  return (host.empty() ? "0.0.0.0" : host) + ":" +
         std::to_string(acceptor.local_endpoint(error).port());
}

Result<Tcp::socket> ConnectTcp(boost::asio::io_context& context, const std::string& address,
                               Deadline deadline, const std::function<bool()>& interrupted) {
  while (true) {
    Result<Tcp::socket> socket = TryConnectAny(context, address, deadline);
    if (socket.ok()) return socket;
    const StatusCode code = socket.status().code();
    // A name that is not known yet is a peer that is not there yet: service names appear when their
    // container starts.
    if (code != StatusCode::kTryAgain && code != StatusCode::kNotFound) return socket.status();
    if (deadline.Passed()) return TimedOut(address + ": " + socket.status().message());
    if (interrupted && interrupted()) return TryAgain(address + ": interrupted");
    PauseBeforeRetry(deadline);
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
