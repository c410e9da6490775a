// One peer over one TCP connection, in the format of tcp_wire.h. Posts are written to the socket
// straight from their sources, and large payloads are read from it straight into the window.
#pragma once

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <string>
#include <vector>

#include "transport/bounded_queue.h"
#include "transport/mapping.h"
#include "transport/poll_set.h"
#include "transport/tcp/tcp_wire.h"
#include "transport/tcp/zero_copy.h"
#include "transport/tcp_socket.h"
#include "transport/transport.h"

namespace lamina {

inline constexpr size_t kTcpMaxOps = 64;
inline constexpr Limits kTcpLimits{.max_ops = kTcpMaxOps,
                                   .max_outstanding = 128,
                                   .max_window_bytes = uint64_t{1} << 40,
                                   .registered_sources = false,
                                   .one_sided = false};

class TcpEndpoint;

// What the endpoints and listeners of a fabric share. Outlives them. Thread: owner of the fabric.
struct TcpContext {
  boost::asio::io_context io;  // never run: the sockets are non-blocking and polled
  PollSet poll_set;
  std::vector<TcpEndpoint*> endpoints;
};

// Owns the socket and the window. Adds itself to the context and leaves it in its destructor.
// Thread: owner of the fabric. Its receiving half is in tcp_receive.cc.
class TcpEndpoint final : public Endpoint {
 public:
  struct Peer {
    std::string name;
    std::string hello;
    uint64_t window_bytes = 0;
  };

  // REQUIRES: the greetings have been exchanged on `socket`, which is not in the poll set.
  TcpEndpoint(TcpContext& context, Tcp::socket socket, Mapping window, Peer peer);
  ~TcpEndpoint() override;

  Status Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify, uint64_t tag) override;
  size_t Poll(std::span<Event> out) override;
  std::span<std::byte> window() override { return window_.bytes(); }
  uint64_t peer_window_bytes() const override { return peer_.window_bytes; }
  const std::string& peer_hello() const override { return peer_.hello; }
  const std::string& peer_name() const override { return peer_.name; }
  std::string last_error() const override { return last_error_; }

  // For Fabric::Arm: lets the poll set wake for everything that the next Poll could do, such as
  // writing on when the socket takes more. False if Poll has something to do already.
  bool PrepareSleep();

 private:
  // A post whose kSent Poll has not returned: its frame headers and sources as buffers in the order
  // of the wire, and how far they are written.
  struct Outgoing {
    void Encode(std::span<const WriteOp> ops, std::optional<uint32_t> notify, uint64_t post_tag,
                uint32_t& next_sequence);
    void Append(boost::asio::const_buffer buffer) { buffers[num_buffers++] = buffer; }

    uint64_t tag = 0;
    uint32_t num_sends = 0;  // of zero_copy_, when it was written: so many must be done
    size_t next_buffer = 0;  // the first that is not written completely
    size_t num_buffers = 0;
    std::array<TcpFrame, kTcpMaxOps> frames;
    std::array<boost::asio::const_buffer, 2 * kTcpMaxOps> buffers;
    // A small post as one buffer, which is a cheaper system call than several.
    std::array<std::byte, 1024> together;
  };

  // Writes what the socket takes of the posts that are not written yet.
  void Flush();
  void Advance(size_t written_bytes);  // accounts for bytes that the socket took
  size_t Write(std::span<const boost::asio::const_buffer> buffers,
               boost::system::error_code& error);

  size_t TakeSent(std::span<Event> out);
  size_t TakeLost(std::span<Event> out);

  // Both return how many notifications they put into `out`.
  size_t Receive(std::span<Event> out);
  size_t ParseStaged(std::span<Event> out);
  // Takes the next header from staging_. False if it is not there yet or is malformed, which ends
  // the connection.
  bool BeginFrame();
  // Reads from the socket and returns the number of bytes; 0 if nothing is there or the peer is
  // gone. Sets `drained` if the socket had less than there was room for.
  size_t Read(bool& drained);
  void ConsumePayload();  // moves payload from staging_ into the window

  void Lose(const std::string& cause);  // closes the socket

  TcpContext& context_;
  Tcp::socket socket_;
  Mapping window_;
  const Peer peer_;

  BoundedQueue<Outgoing> posts_;
  ZeroCopySends zero_copy_;
  uint32_t next_sequence_ = 0;  // of the next frame that is sent
  // So many posts at the front of posts_ are written. They no longer need their sources, unless a
  // zero-copy send still reads them.
  size_t num_written_ = 0;
  std::string write_error_;      // why writing failed; what the peer sent before is still read
  bool wants_writable_ = false;  // the poll set waits for EPOLLOUT too

  // Bytes read behind the current payload: those in [staged_begin_, staged_end_).
  std::vector<std::byte> staging_;
  size_t staged_begin_ = 0;
  size_t staged_end_ = 0;
  uint32_t next_received_ = 0;  // the sequence number of the next frame
  TcpFrame frame_;              // the frame being received if in_frame_, else the last one
  bool in_frame_ = false;
  uint64_t payload_done_bytes_ = 0;  // how much of the frame's payload is in the window
  uint32_t polls_since_read_ = 0;
  bool stopped_early_ = true;  // the last Poll may have left something to do

  bool lost_ = false;
  bool said_lost_ = false;  // Poll has returned kPeerLost
  std::string last_error_;
};

}  // namespace lamina
