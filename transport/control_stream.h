// The byte stream of one control connection, or of a client of the HTTP server, over plain TCP or
// inside TLS.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/control_handshake.h"
#include "transport/posix.h"

namespace lamina {

// One end of the stream, which owns its socket. No call waits: after kTryAgain, poll(2) on fd()
// says when to call again. After any other error only the destructor may be called. Thread: one at
// a time.
class ControlStream {
 public:
  virtual ~ControlStream() = default;  // closes the socket

  virtual int fd() const = 0;

  // Ok once Read and Write may be called; kTryAgain if wanted_events() must come first.
  // kInvalidArgument with the reason if one end refuses the other's certificate or does not speak
  // TLS; kCorrupt if the peer breaks the protocol; kPeerLost if it is gone.
  virtual Status Handshake() = 0;
  virtual short wanted_events() const = 0;  // POLLIN or POLLOUT

  // Reads what is there and returns the number of bytes: at least one, or 0 if the peer has closed
  // its end. kTryAgain if nothing is there; other errors as Handshake returns them.
  virtual Result<size_t> Read(std::span<char> into) = 0;

  // Whether Read would return bytes that have left the socket already, for which poll(2) does not
  // wake.
  virtual bool has_buffered() const = 0;

  // Writes `first` and then `second`, as far as the socket takes them, and returns how many bytes
  // it took. After kTryAgain the next call must begin with the same bytes. kPeerLost if the peer is
  // gone. REQUIRES: at least one of them is not empty.
  virtual Result<size_t> Write(std::string_view first, std::string_view second) = 0;

  // Tells the peer that nothing more comes: from now on only Read may be called. REQUIRES: what was
  // to be written was taken.
  virtual void EndOutput() = 0;
};

// A stream of plain TCP over `socket`, which it owns. REQUIRES: `socket` is connected and
// non-blocking.
std::unique_ptr<ControlStream> MakeTcpStream(UniqueFd socket);

}  // namespace lamina
