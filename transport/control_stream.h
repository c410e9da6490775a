// The bytes of one control connection: over TCP as they are, or inside TLS.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/control_handshake.h"
#include "transport/posix.h"

namespace lamina {

// One end. Nothing waits: kTryAgain means that poll(2) on fd() says when to go on. After any other
// error only the destructor may be called. Thread: one at a time.
class ControlStream {
 public:
  virtual ~ControlStream() = default;  // closes the socket

  virtual int fd() const = 0;

  // Ok once Read and Write may be called; kTryAgain when wanted_events() must come first.
  // kInvalidArgument: this end or the peer refuses the other, with the reason; kCorrupt, kPeerLost.
  virtual Status Handshake() = 0;
  virtual short wanted_events() const = 0;  // POLLIN or POLLOUT

  // Reads what is there: at least one byte, 0 when the peer has closed its end, kTryAgain if there
  // is nothing. Else as Handshake.
  virtual Result<size_t> Read(std::span<char> into) = 0;

  // Whether Read has bytes for which the socket does not become readable.
  virtual bool has_buffered() const = 0;

  // Writes from the beginning of `first` + `second` and returns how many bytes were taken. After
  // kTryAgain the next call begins with the same bytes. REQUIRES: they are not both empty.
  virtual Result<size_t> Write(std::string_view first, std::string_view second) = 0;
};

// `socket` is connected and non-blocking.
std::unique_ptr<ControlStream> MakeTcpStream(UniqueFd socket);

}  // namespace lamina
