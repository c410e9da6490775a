// Opens TCP sockets by host name, without waiting or with deadlines, for the tcp fabric, the
// rendezvous of fabrics with a NIC, and the control channel.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "transport/poll_set.h"

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

// What `acceptor` has bound, with the host as a number: nobody has to look up a name to get there.
std::string BoundAddress(const Tcp::acceptor& acceptor);
// `address` with the port that `acceptor` has bound, and with "0.0.0.0" for an empty host.
std::string BoundAddress(const Tcp::acceptor& acceptor, const std::string& address);

// A TCP connection that is being made. Attempts are repeated while the host is unknown, refuses or
// does not answer. Thread: owner.
class TcpConnector {
 public:
  // While an attempt is under way its socket is in `poll_set`, if there is one, which becomes
  // readable when Poll gets further.
  TcpConnector(boost::asio::io_context& context, std::string address, Deadline deadline,
               PollSet* poll_set = nullptr)
      : context_(context),
        address_(std::move(address)),
        deadline_(deadline),
        poll_set_(poll_set),
        socket_(context),
        attempt_ends_(deadline) {}

  // Returns a connected socket on which TuneSocket was called, and kTryAgain until there is one.
  // kTimeout at the deadline, naming the address and the last cause; kInvalidArgument for an
  // address that cannot be parsed; kOutOfSpace if there is no descriptor left. Does not wait,
  // except where the host is a name that must be looked up. REQUIRES: every call before this one
  // returned kTryAgain.
  Result<Tcp::socket> Poll();

  // What to wait for after a kTryAgain: until fd() can be written (-1: there is none) or wake_at().
  int fd() { return socket_.is_open() ? socket_.native_handle() : -1; }
  TimePoint wake_at() const {
    return std::min(deadline_.at(), socket_.is_open() ? attempt_ends_.at() : next_round_);
  }

 private:
  Status BeginAttempt();  // kTryAgain: not before next_round_
  Status BeginRound();
  Status Begin(const Tcp::endpoint& peer);  // kTryAgain: refused or unreachable at the moment
  Status Outcome();                         // of an attempt that is over; the same
  void NoteFailure(const Status& why);

  boost::asio::io_context& context_;
  const std::string address_;
  const Deadline deadline_;
  PollSet* const poll_set_;
  // What the name stands for at the moment. In each round every one of them is tried once.
  std::vector<Tcp::endpoint> peers_;
  size_t next_ = 0;                 // the next one to try
  Status last_;                     // why the last attempt failed; ok before it
  TimePoint next_round_{};          // when the next round may begin
  Tcp::socket socket_;              // open while an attempt is under way
  Deadline attempt_ends_;           // that attempt, without an answer
  std::optional<PollEntry> entry_;  // of socket_; after it, to be given up before
};

// The connected socket of a TcpConnector, for which it blocks. Returns the same errors; and
// kTryAgain once `interrupted`, which is called now and then, returns true.
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
