// TCP connections by name and with deadlines, for the tcp fabric and the control channel.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace lamina {

using Tcp = boost::asio::ip::tcp;

struct HostPort {
  std::string host;  // without the brackets of an IPv6 address; may be empty
  std::string port;  // decimal, 0..65535
};

// "host:port", "[v6 address]:port" or ":port". kInvalidArgument quotes the text and says what is
// expected.
Result<HostPort> ParseHostPort(std::string_view address);

// A listening, non-blocking socket; port 0 takes any free port, an empty host all interfaces.
// kOutOfSpace "port in use", kNotFound if the host is unknown.
Result<Tcp::acceptor> ListenTcp(boost::asio::io_context& context, const std::string& address);

// `address` with the port that `acceptor` has really bound.
std::string BoundAddress(const Tcp::acceptor& acceptor, const std::string& address);

// A connected, non-blocking, tuned socket. Blocks until `deadline`; retries while the host is
// unknown or refuses. kInvalidArgument or kTimeout, naming the address and the last cause;
// kTryAgain if `interrupted`, which is asked between attempts.
Result<Tcp::socket> ConnectTcp(boost::asio::io_context& context, const std::string& address,
                               Deadline deadline,
                               const std::function<bool()>& interrupted = nullptr);

// Non-blocking, no Nagle delay, and the kernel finds out that a machine is gone: within 15 s on an
// idle connection, within 60 s with data under way. So a peer that takes nothing for 60 s counts as
// gone too. kPeerLost if the connection is gone already.
Status TuneSocket(int socket);
Status TuneSocket(Tcp::socket& socket);

// "10.0.0.1:7000", "[::1]:7000".
std::string AddressText(const Tcp::endpoint& endpoint);

}  // namespace lamina
