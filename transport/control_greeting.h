// The exchange of hellos that opens a control connection.
#pragma once

#include <string>

#include "transport/control_frame.h"
#include "transport/posix.h"

namespace lamina {

inline constexpr size_t kMaxControlHelloBytes = 4096;

// kInvalidArgument if the hello is too long or a duration is not positive.
Status CheckControlOptions(const ControlOptions& options);

// Sends this end's hello at once: it always fits into a fresh socket's buffer. kPeerLost if it did not.
Status SendControlHello(int socket, const std::string& hello);

// Reads the peer's hello as it comes, and no byte more. Thread: owner.
class ControlHelloReader {
 public:
  // Ok when complete; kTryAgain when more must come; kPeerLost or kCorrupt with the cause. `socket` is non-blocking.
  Status Advance(int socket);

  const std::string& hello() const { return hello_; }  // REQUIRES: Advance returned ok

 private:
  ControlFrameDecoder decoder_{kMaxControlHelloBytes};
  std::string hello_;
};

}  // namespace lamina
