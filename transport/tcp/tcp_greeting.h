// The exchange of greetings that opens a tcp connection.
#pragma once

#include <string>

#include "base/status.h"
#include "transport/tcp/tcp_wire.h"
#include "transport/tcp_socket.h"
#include "transport/transport.h"

namespace lamina {

// Sends this end's greeting at once: it always fits into a fresh socket's buffer. kPeerLost if it
// did not.
Status SendTcpGreeting(Tcp::socket& socket, const EndpointOptions& options);

// Reads the peer's greeting as it comes, and no byte more: frames may follow it. Thread: owner.
class TcpGreetingReader {
 public:
  // Ok when complete, kTryAgain when more must come, else why the peer is none of ours; call no
  // more then.
  Status Advance(Tcp::socket& socket);

  // REQUIRES: Advance returned ok.
  uint64_t window_bytes() const { return greeting_.window_bytes; }
  const std::string& hello() const { return hello_; }

 private:
  Status Fill(Tcp::socket& socket, char* into, size_t bytes);  // kTryAgain until all have come
  Status Check() const;

  TcpGreeting greeting_;
  std::string hello_;
  size_t have_bytes_ = 0;  // of the part that is being read
  bool have_header_ = false;
};

}  // namespace lamina
