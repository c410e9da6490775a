// Accepts TCP peers and takes their greetings.
#pragma once

#include <list>
#include <string>

#include "transport/strangers.h"
#include "transport/tcp/tcp_endpoint.h"
#include "transport/tcp/tcp_greeting.h"

namespace lamina {

class TcpListener final : public Listener {
 public:
  TcpListener(TcpContext& context, Tcp::acceptor acceptor, std::string address);
  ~TcpListener() override;

  Result<std::unique_ptr<Endpoint>> Accept(const EndpointOptions& options) override;
  const std::string& address() const override { return address_; }

 private:
  // A peer whose greeting has not come completely.
  struct Pending {
    Tcp::socket socket;
    std::string name;
    std::string origin;
    TimePoint since;
    TcpGreetingReader greeting;
  };

  Status TakeNewPeers();
  void Drop(std::list<Pending>::iterator stranger);
  Result<std::unique_ptr<Endpoint>> Finish(Pending pending, const EndpointOptions& options);

  TcpContext& context_;
  Tcp::acceptor acceptor_;
  const std::string address_;
  std::list<Pending> pending_;
};

}  // namespace lamina
