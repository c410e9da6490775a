// The listener of the tcp fabric: accepts connections and reads the peers' greetings. A peer must
// greet within 5 s; peers that have not greeted hold at most 64 sockets (strangers.h).
#pragma once

#include <list>
#include <string>

#include "transport/strangers.h"
#include "transport/tcp/tcp_endpoint.h"
#include "transport/tcp/tcp_greeting.h"

namespace lamina {

// Owns the listening socket and those of peers that have not greeted. Thread: owner of the fabric.
class TcpListener final : public Listener {
 public:
  TcpListener(TcpContext& context, Tcp::acceptor acceptor, std::string address);
  ~TcpListener() override;

  Result<std::unique_ptr<Endpoint>> Accept(const EndpointOptions& options) override;
  const std::string& address() const override { return address_; }

 private:
  // A peer whose greeting is not complete.
  struct Pending {
    Tcp::socket socket;
    std::string name;
    std::string origin;
    TimePoint since;
    TcpGreetingReader greeting;
  };

  Status TakeNewPeers();
  // The next peer that has greeted, of those that were taken.
  Result<std::unique_ptr<Endpoint>> TakeGreeted(const EndpointOptions& options);
  void Drop(std::list<Pending>::iterator stranger);
  Result<std::unique_ptr<Endpoint>> Finish(Pending pending, const EndpointOptions& options);

  TcpContext& context_;
  Tcp::acceptor acceptor_;
  const std::string address_;
  std::list<Pending> pending_;
};

}  // namespace lamina
