#include "transport/control_channel.h"

#include <fcntl.h>
#include <poll.h>

#include <boost/asio/io_context.hpp>
#include <boost/system/system_error.hpp>

#include "transport/control_connection.h"
#include "transport/control_greeting.h"
#include "transport/control_listener.h"
#include "transport/tcp_socket.h"

namespace lamina {
namespace {

// How often `interrupted` is called while the peer's greeting does not come.
constexpr auto kInterruptionInterval = milliseconds(100);

// The socket leaves Asio here: each connection's thread waits for its socket and its queue with
// poll.
Result<UniqueFd> OpenSocket(const std::string& address, const ControlOptions& options,
                            Deadline deadline) {
  try {
    boost::asio::io_context context;
    LAMINA_ASSIGN_OR_RETURN(Tcp::socket socket,
                            ConnectTcp(context, address, deadline, options.interrupted));
    boost::system::error_code error;
    UniqueFd fd(socket.release(error));
    LAMINA_RETURN_IF_ERROR(TuneSocket(fd.get()));
    return fd;
  } catch (const boost::system::system_error& error) {
    return OutOfSpace(std::string("connecting to ") + address + ": " + error.what());
  }
}

struct BoundSocket {
  UniqueFd socket;
  std::string address;
};

Result<BoundSocket> OpenListener(const std::string& address) {
  try {
    boost::asio::io_context context;
    LAMINA_ASSIGN_OR_RETURN(Tcp::acceptor acceptor, ListenTcp(context, address));
    std::string bound = BoundAddress(acceptor, address);
    boost::system::error_code error;
    UniqueFd fd(acceptor.release(error));
    fcntl(fd.get(), F_SETFL, O_NONBLOCK);  // whatever Asio has left it at
    return BoundSocket{std::move(fd), std::move(bound)};
  } catch (const boost::system::system_error& error) {
    return OutOfSpace(std::string("listening on ") + address + ": " + error.what());
  }
}

// Runs the connecting end's greeting and returns the peer's hello.
Result<std::string> Greet(ControlStream& stream, const ControlOptions& options, Deadline deadline) {
  LAMINA_RETURN_IF_ERROR(CheckConnectorProof(stream.fd(), options));
  LAMINA_ASSIGN_OR_RETURN(ControlGreeting greeting,
                          ControlGreeting::Create(ControlRole::kConnector, options));
  while (true) {
    const Status status = greeting.Advance(stream);
    if (status.ok()) return greeting.peer_hello();
    if (status.code() != StatusCode::kTryAgain) return status;
    while (!WaitForFd(stream.fd(), stream.wanted_events(),
                      deadline.NoLaterThan(Clock::now() + kInterruptionInterval))) {
      if (deadline.Passed()) return TimedOut("connected, but " + status.message());
      if (options.interrupted && options.interrupted()) return TryAgain("interrupted");
    }
  }
}

}  // namespace

Result<std::unique_ptr<ControlListener>> ControlListener::Create(
    const std::string& address, const ControlOptions& options,
    std::function<void(std::unique_ptr<ControlConnection>)> on_accept) {
  LAMINA_RETURN_IF_ERROR(CheckControlOptions(options));
  LAMINA_ASSIGN_OR_RETURN(BoundSocket bound, OpenListener(address));
  LAMINA_RETURN_IF_ERROR(CheckListenerProof(bound.socket.get(), bound.address, options));
  return std::unique_ptr<ControlListener>(std::make_unique<TcpControlListener>(
      std::move(bound.socket), std::move(bound.address), options, std::move(on_accept)));
}

Result<std::unique_ptr<ControlConnection>> ConnectControl(const std::string& address,
                                                          const ControlOptions& options,
                                                          Deadline deadline) {
  LAMINA_RETURN_IF_ERROR(CheckControlOptions(options));
  LAMINA_ASSIGN_OR_RETURN(UniqueFd socket, OpenSocket(address, options, deadline));
  LAMINA_ASSIGN_OR_RETURN(const HostPort parts, ParseHostPort(address));
  // The resolver takes an empty host for this machine too.
  const std::string host = parts.host.empty() ? "localhost" : parts.host;
  LAMINA_ASSIGN_OR_RETURN(
      std::unique_ptr<ControlStream> stream,
      MakeControlStream(std::move(socket), ControlRole::kConnector, host, options));
  Result<std::string> hello = Greet(*stream, options, deadline);
  if (!hello.ok()) return hello.status().WithContext(address);
  return TcpControlConnection::Create(std::move(stream), {std::move(*hello), address}, options);
}

}  // namespace lamina
