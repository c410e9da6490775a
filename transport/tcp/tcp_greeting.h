// The exchange of greetings that opens a tcp connection.
#pragma once

#include <string>

#include "base/status.h"
#include "transport/tcp/tcp_wire.h"
#include "transport/tcp_socket.h"
#include "transport/transport.h"

namespace lamina {

// Sends this end's greeting without waiting: it always fits into the buffer of a fresh socket.
// kPeerLost if the socket did not take all of it. REQUIRES: CheckOptions of `options` was ok.
Status SendTcpGreeting(Tcp::socket& socket, const EndpointOptions& options);

// Reads the peer's greeting as it comes, and no byte beyond it, as frames may follow. Thread:
// owner.
class TcpGreetingReader {
 public:
  // Ok once the greeting is complete; kTryAgain if more must come: call again. kPeerLost with the
  // cause if the peer is gone or does not speak this version of the protocol.
  Status Advance(Tcp::socket& socket);

  // REQUIRES: Advance returned ok.
  uint64_t window_bytes() const { return greeting_.window_bytes; }
  const std::string& hello() const { return hello_; }

 private:
  // Reads on until `bytes` bytes are at `into`; kTryAgain until then.
  Status Fill(Tcp::socket& socket, char* into, size_t bytes);
  Status Check() const;

  TcpGreeting greeting_;
  std::string hello_;
  size_t have_bytes_ = 0;  // of the part that is being read
  bool have_header_ = false;
};

}  // namespace lamina
