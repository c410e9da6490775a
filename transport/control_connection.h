// One control connection: a stream of bytes, a queue of frames to send, and the thread that serves
// both.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/inbox.h"
#include "transport/control_frame.h"
#include "transport/control_stream.h"

namespace lamina {

class TcpControlConnection final : public ControlConnection {
 public:
  struct Peer {
    std::string hello;
    std::string address;
  };

  // Starts the thread, which sends heartbeats from now on. kOutOfSpace if the process has no
  // descriptor or thread left for it. REQUIRES: hellos have been exchanged on `stream`.
  static Result<std::unique_ptr<ControlConnection>> Create(std::unique_ptr<ControlStream> stream,
                                                           Peer peer,
                                                           const ControlOptions& options);
  ~TcpControlConnection() override;

  void Start(Callbacks callbacks) override;
  void LimitFrames(size_t max_payload_bytes) override {
    max_payload_bytes_ = std::min(max_payload_bytes, kMaxFrameBytes);
  }
  void Abort() override;
  Status Send(uint16_t type, std::string payload) override;
  void Close(Deadline deadline) override;
  const std::string& peer_hello() const override { return peer_.hello; }
  const std::string& peer_address() const override { return peer_.address; }

 private:
  TcpControlConnection(std::unique_ptr<ControlStream> stream, Peer peer,
                       const ControlOptions& options, WakeFd wake);

  struct OutgoingFrame {
    std::array<char, kControlHeaderBytes> header;
    std::string payload;
    size_t bytes() const { return header.size() + payload.size(); }
  };

  // What the other threads want of this connection's. It only grows.
  struct Wish {
    bool started = false;
    bool abort = false;                      // Abort was called, or it is destroyed
    std::optional<Deadline> close_deadline;  // Close was called
  };

  // Any thread. REQUIRES: mutex_ held.
  void Enqueue(uint16_t type, std::string payload);
  void WriteQueued();  // what the stream takes without waiting
  size_t WriteSome(const OutgoingFrame& frame);

  // The connection's thread. Everything below runs there, without the mutex; of the stream it uses
  // only fd() then.
  struct Plan {
    short events = 0;  // what to wait for on the socket
    int timeout_ms = 0;
    bool has_buffered = false;  // there is something to read at once
  };
  void Run();
  bool Step();  // false when the connection is over
  bool WriteAndPlan(Plan& plan);
  Plan MakePlan() const;  // REQUIRES: mutex_ held
  void StartClosing();    // REQUIRES: mutex_ held
  void CheckSilence();
  Result<size_t> ReadSome();  // takes the mutex: another thread may be writing
  void Receive();
  void Handle(ControlFrame frame);
  void Lose(Status cause);
  bool MayCallBack();

  const Peer peer_;
  const ControlOptions options_;
  WakeFd wake_;
  std::atomic<size_t> max_payload_bytes_ = kMaxFrameBytes;

  std::mutex mutex_;                       // guards what follows
  std::unique_ptr<ControlStream> stream_;  // until the connection is over
  Wish wish_;
  Callbacks callbacks_;  // only the thread's once wish_.started
  std::deque<OutgoingFrame> outbox_;
  size_t unsent_bytes_ = 0;
  size_t front_sent_bytes_ = 0;  // of outbox_'s front
  bool wants_writable_ = false;
  bool closing_ = false;
  bool said_all_ = false;  // closing, and everything is sent
  TimePoint last_sent_;
  Status lost_;  // why nothing can be sent any more; what the peer sent before is still read

  // The thread's own.
  Wish seen_;
  ControlFrameDecoder decoder_;
  std::string read_buffer_;
  bool over_ = false;
  TimePoint last_heard_;

  std::mutex join_mutex_;  // Close and the destructor may meet
  std::thread thread_;     // last: runs on the members above
};

}  // namespace lamina
