// One peer over one TCP connection. Posts are written straight from their sources, payloads are
// read straight into the window.
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

// What a fabric's endpoints and listeners share. Outlives them.
struct TcpContext {
  boost::asio::io_context io;  // never run: the sockets are non-blocking and polled
  PollSet poll_set;
  std::vector<TcpEndpoint*> endpoints;
};

class TcpEndpoint final : public Endpoint {
 public:
  struct Peer {
    std::string name;
    std::string hello;
    uint64_t window_bytes = 0;
  };

  // REQUIRES: greetings have been exchanged on `socket`, which is not in the poll set.
  TcpEndpoint(TcpContext& context, Tcp::socket socket, Mapping window, Peer peer);
  ~TcpEndpoint() override;

  Status Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify, uint64_t tag) override;
  size_t Poll(std::span<Event> out) override;
  std::span<std::byte> window() override { return window_.bytes(); }
  uint64_t peer_window_bytes() const override { return peer_.window_bytes; }
  const std::string& peer_hello() const override { return peer_.hello; }
  const std::string& peer_name() const override { return peer_.name; }
  std::string last_error() const override { return last_error_; }

  // For Fabric::Arm: sees to it that the poll set wakes for all that Poll waits for. False if Poll
  // has something already.
  bool PrepareSleep();

 private:
  // A post that Poll has not returned yet: its frames, interleaved with its sources, and how far
  // they are written.
  struct Outgoing {
    void Encode(std::span<const WriteOp> ops, std::optional<uint32_t> notify, uint64_t post_tag,
                uint32_t& next_sequence);
    void Append(boost::asio::const_buffer buffer) { buffers[num_buffers++] = buffer; }

    uint64_t tag = 0;
    uint32_t num_sends = 0;  // once written: the zero-copy sends that must be done
    size_t next_buffer = 0;
    size_t num_buffers = 0;
    std::array<TcpFrame, kTcpMaxOps> frames;
    std::array<boost::asio::const_buffer, 2 * kTcpMaxOps> buffers;
    // A small post as one buffer, which is a cheaper system call than several.
    std::array<std::byte, 1024> together;
  };

  // The part of `posts_` that is not written.
  void Flush();
  void Advance(size_t written_bytes);
  size_t Write(std::span<const boost::asio::const_buffer> buffers,
               boost::system::error_code& error);

  size_t TakeSent(std::span<Event> out);
  size_t TakeLost(std::span<Event> out);

  // Both return how many notifications they put into `out`.
  size_t Receive(std::span<Event> out);
  size_t ParseStaged(std::span<Event> out);
  // False if the header is not there yet or the frame is bad, which ends the connection.
  bool BeginFrame();
  // 0 if there is nothing to read or the peer is gone; `drained`: the socket had less than there
  // was room for.
  size_t Read(bool& drained);
  void ConsumePayload();

  void Lose(const std::string& cause);

  TcpContext& context_;
  Tcp::socket socket_;
  Mapping window_;
  const Peer peer_;

  BoundedQueue<Outgoing> posts_;
  ZeroCopySends zero_copy_;
  uint32_t next_sequence_ = 0;
  // The oldest of posts_; done with their sources but for zero-copy sends.
  size_t num_written_ = 0;
  std::string write_error_;  // writing failed; what the peer sent before is still read
  bool wants_writable_ = false;

  std::vector<std::byte> staging_;  // bytes read behind the current payload
  size_t staged_begin_ = 0;
  size_t staged_end_ = 0;
  uint32_t next_received_ = 0;
  TcpFrame frame_;  // being received, while in_frame_; else the last one
  bool in_frame_ = false;
  uint64_t payload_done_bytes_ = 0;
  uint32_t polls_since_read_ = 0;
  bool stopped_early_ = true;  // the last Poll may have left something

  bool lost_ = false;
  bool said_lost_ = false;
  std::string last_error_;
};

}  // namespace lamina
