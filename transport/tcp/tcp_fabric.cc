#include "transport/tcp/tcp_fabric.h"

#include <sys/epoll.h>

#include <boost/system/system_error.hpp>
#include <optional>

#include "transport/checks.h"
#include "transport/tcp/tcp_endpoint.h"
#include "transport/tcp/tcp_greeting.h"
#include "transport/tcp/tcp_listener.h"

namespace lamina {
namespace {

// Connects the socket, and exchanges greetings on it.
class TcpConnecting final : public Connecting {
 public:
  TcpConnecting(TcpContext& context, const std::string& address, const EndpointOptions& options,
                Mapping window, Deadline deadline)
      : context_(context),
        address_(address),
        options_(options),
        deadline_(deadline),
        window_(std::move(window)),
        connector_(context.io, address, deadline, &context.poll_set) {}

  Result<std::unique_ptr<Endpoint>> Poll() override {
    if (!socket_) {
      LAMINA_ASSIGN_OR_RETURN(socket_, connector_.Poll());
      entry_.emplace(context_.poll_set, socket_->native_handle(), EPOLLIN);
      const Status sent = SendTcpGreeting(*socket_, options_);
      if (!sent.ok()) return sent.WithContext(address_);
    }
    Status status = greeting_.Advance(*socket_);
    if (status.code() == StatusCode::kTryAgain) {
      if (!deadline_.Passed()) return status;
      status = TimedOut("connected, but the peer does not accept");
    }
    if (!status.ok()) return status.WithContext(address_);
    entry_.reset();
    TcpEndpoint::Peer peer{address_, greeting_.hello(), greeting_.window_bytes()};
    return std::unique_ptr<Endpoint>(std::make_unique<TcpEndpoint>(
        context_, *std::move(socket_), std::move(window_), std::move(peer)));
  }

  TimePoint wake_at() const override { return socket_ ? deadline_.at() : connector_.wake_at(); }

 private:
  TcpContext& context_;
  const std::string address_;
  const EndpointOptions options_;
  const Deadline deadline_;
  Mapping window_;
  TcpConnector connector_;
  std::optional<Tcp::socket> socket_;  // empty until it is connected
  std::optional<PollEntry> entry_;     // of socket_; after it, to be given up before
  TcpGreetingReader greeting_;
};

class TcpFabric final : public Fabric {
 public:
  std::string_view name() const override { return "tcp"; }
  const Limits& limits() const override { return kTcpLimits; }
  Result<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return AllocateMappedBuffer(bytes);
  }

  Result<std::unique_ptr<Listener>> Listen(const std::string& address) override {
    LAMINA_ASSIGN_OR_RETURN(Tcp::acceptor acceptor, ListenTcp(context_.io, address));
    std::string bound = BoundAddress(acceptor);
    return std::unique_ptr<Listener>(
        std::make_unique<TcpListener>(context_, std::move(acceptor), std::move(bound)));
  }

  Result<std::unique_ptr<Connecting>> StartConnect(const std::string& address,
                                                   const EndpointOptions& options,
                                                   Deadline deadline) override {
    LAMINA_RETURN_IF_ERROR(CheckOptions(options, kTcpLimits));
    LAMINA_ASSIGN_OR_RETURN(Mapping window, Mapping::Anonymous(options.window_bytes));
    return std::unique_ptr<Connecting>(
        std::make_unique<TcpConnecting>(context_, address, options, std::move(window), deadline));
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
