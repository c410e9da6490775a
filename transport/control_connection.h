// One control connection: a stream of bytes, a queue of frames to send, and the thread that serves
// both.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/inbox.h"
#include "base/mutex.h"
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
    bool abort = false;                      // destroyed
    std::optional<Deadline> close_deadline;  // Close was called
  };

  // Thread: any.
  void Enqueue(uint16_t type, std::string payload) REQUIRES(mutex_);
  void WriteQueued() REQUIRES(mutex_);  // what the stream takes without waiting
  size_t WriteSome(const OutgoingFrame& frame) REQUIRES(mutex_);

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
  Plan MakePlan() const REQUIRES(mutex_);
  void StartClosing() REQUIRES(mutex_);
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

  Mutex mutex_;
  // Until the connection is over. Used with the mutex held, except that the connection's thread,
  // which alone resets it, asks for its fd() without.
  std::unique_ptr<ControlStream> stream_;
  Wish wish_ GUARDED_BY(mutex_);
  // Set before wish_.started says so; from then on only the connection's thread uses them.
  Callbacks callbacks_;
  std::deque<OutgoingFrame> outbox_ GUARDED_BY(mutex_);
  size_t unsent_bytes_ GUARDED_BY(mutex_) = 0;
  size_t front_sent_bytes_ GUARDED_BY(mutex_) = 0;  // of outbox_'s front
  bool wants_writable_ GUARDED_BY(mutex_) = false;
  bool closing_ GUARDED_BY(mutex_) = false;
  bool said_all_ GUARDED_BY(mutex_) = false;  // closing, and everything is sent
  TimePoint last_sent_ GUARDED_BY(mutex_);
  // Why nothing can be sent any more; what the peer sent before is still read.
  Status lost_ GUARDED_BY(mutex_);

  // The thread's own.
  Wish seen_;
  ControlFrameDecoder decoder_;
  std::string read_buffer_;
  bool over_ = false;
  TimePoint last_heard_;

  Mutex join_mutex_;    // Close and the destructor may meet
  std::thread thread_;  // last: runs on the members above
};

}  // namespace lamina
