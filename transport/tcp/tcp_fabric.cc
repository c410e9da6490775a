#include "transport/tcp/tcp_fabric.h"

#include <poll.h>

#include <boost/system/system_error.hpp>

#include "transport/checks.h"
#include "transport/posix.h"
#include "transport/tcp/tcp_endpoint.h"
#include "transport/tcp/tcp_greeting.h"
#include "transport/tcp/tcp_listener.h"

namespace lamina {
namespace {

class TcpFabric final : public Fabric {
 public:
  std::string_view name() const override { return "tcp"; }
  const Limits& limits() const override { return kTcpLimits; }
  Result<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return AllocateMappedBuffer(bytes);
  }

  Result<std::unique_ptr<Listener>> Listen(const std::string& address) override {
    LAMINA_ASSIGN_OR_RETURN(Tcp::acceptor acceptor, ListenTcp(context_.io, address));
    std::string bound = BoundAddress(acceptor, address);
    return std::unique_ptr<Listener>(
        std::make_unique<TcpListener>(context_, std::move(acceptor), std::move(bound)));
  }

  Result<std::unique_ptr<Endpoint>> Connect(const std::string& address,
                                            const EndpointOptions& options,
                                            Deadline deadline) override {
    LAMINA_RETURN_IF_ERROR(CheckOptions(options, kTcpLimits));
    LAMINA_ASSIGN_OR_RETURN(Mapping window, Mapping::Anonymous(options.window_bytes));
    LAMINA_ASSIGN_OR_RETURN(Tcp::socket socket, ConnectTcp(context_.io, address, deadline));
    Status status = SendTcpGreeting(socket, options);
    TcpGreetingReader greeting;
    while (status.ok()) {
      status = greeting.Advance(socket);
      if (status.ok()) break;
      if (status.code() != StatusCode::kTryAgain) return status.WithContext(address);
      status = WaitForFd(socket.native_handle(), POLLIN, deadline)
                   ? OkStatus()
                   : TimedOut("connected, but the peer does not accept");
    }
    if (!status.ok()) return status.WithContext(address);
    TcpEndpoint::Peer peer{address, greeting.hello(), greeting.window_bytes()};
    return std::unique_ptr<Endpoint>(std::make_unique<TcpEndpoint>(
        context_, std::move(socket), std::move(window), std::move(peer)));
  }

  bool Arm() override {
    bool may_sleep = true;
    for (TcpEndpoint* endpoint : context_.endpoints)
      may_sleep = endpoint->PrepareSleep() && may_sleep;
    return may_sleep;
  }

  int event_fd() const override { return context_.poll_set.fd(); }

 private:
  TcpContext context_;
};

}  // namespace

Result<std::unique_ptr<Fabric>> OpenTcpFabric() {
  try {
    return std::unique_ptr<Fabric>(std::make_unique<TcpFabric>());
  } catch (const boost::system::system_error& error) {  // Asio's io_context opens descriptors
    return OutOfSpace(std::string("opening the tcp fabric: ") + error.what());
  }
}

}  // namespace lamina
