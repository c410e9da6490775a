// Opens TCP sockets by host name and with deadlines, for the tcp fabric, the rendezvous of fabrics
// with a NIC, and the control channel.
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

// Parses "host:port", "[v6 address]:port" or ":port". kInvalidArgument for other text, which the
// message quotes.
Result<HostPort> ParseHostPort(std::string_view address);

// A listening, non-blocking socket at "host:port". Port 0 takes any free port, an empty host all
// interfaces. kInvalidArgument for an address that cannot be parsed or bound; kNotFound if the host
// is unknown; kOutOfSpace if the port is in use, or descriptors or memory run out.
Result<Tcp::acceptor> ListenTcp(boost::asio::io_context& context, const std::string& address);

// `address` with the port that `acceptor` has bound, and with "0.0.0.0" for an empty host.
std::string BoundAddress(const Tcp::acceptor& acceptor, const std::string& address);

// A connected socket on which TuneSocket was called. Blocks until then; retries while the host is
// unknown, refuses or does not answer. kTimeout at `deadline`, naming the address and the last
// cause; kInvalidArgument for an address that cannot be parsed; kOutOfSpace if there is no
// descriptor left; kTryAgain once `interrupted`, which is called between attempts, returns true.
Result<Tcp::socket> ConnectTcp(boost::asio::io_context& context, const std::string& address,
                               Deadline deadline,
                               const std::function<bool()>& interrupted = nullptr);

// Makes a socket non-blocking, turns Nagle's delay off, and lets the kernel find out that a machine
// is gone: within 15 s on an idle connection, within 60 s while data is in flight. A peer that
// takes nothing for 60 s counts as gone too. kPeerLost if the connection is gone already.
Status TuneSocket(int socket);
Status TuneSocket(Tcp::socket& socket);

// "10.0.0.1:7000", "[::1]:7000".
std::string AddressText(const Tcp::endpoint& endpoint);

}  // namespace lamina
