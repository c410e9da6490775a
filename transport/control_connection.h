// The implementation of ControlConnection: a byte stream, a queue of frames to send, and the thread
// that serves both.
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

// Over TCP, inside TLS if the stream is. Send writes to the stream at once if nothing is queued, on
// the caller's thread; everything else happens on the connection's own. The stream is used by one
// thread at a time, under mutex_. Thread: any; callbacks run on the connection's thread.
class TcpControlConnection final : public ControlConnection {
 public:
  struct Peer {
    std::string hello;
    std::string address;
  };

  // Starts the thread, which sends heartbeats from now on. kOutOfSpace if the process has no
  // descriptor or thread left. REQUIRES: the greeting is complete on `stream`.
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

  // What other threads ask of the connection's thread. Nothing in it is ever taken back.
  struct Wish {
    bool started = false;                    // Start was called
    bool abort = false;                      // Abort was called, or the destructor runs
    std::optional<Deadline> close_deadline;  // Close was called
  };

  // Thread: any.
  void Enqueue(uint16_t type, std::string payload) REQUIRES(mutex_);
  void WriteQueued() REQUIRES(mutex_);  // writes what the stream takes without waiting
  size_t WriteSome(const OutgoingFrame& frame) REQUIRES(mutex_);

  // Everything below runs on the connection's thread, without the mutex unless it says so. Without
  // the mutex that thread uses nothing of the stream but fd().
  struct Plan {        // what to wait for next
    short events = 0;  // on the socket; 0: nothing
    int timeout_ms = 0;
    bool has_buffered = false;  // the stream has bytes that can be read at once
  };
  void Run();
  bool Step();                    // writes, waits, reads; false when the connection is over
  bool WriteAndPlan(Plan& plan);  // false when the connection is over; takes the mutex
  Plan MakePlan() const REQUIRES(mutex_);
  void StartClosing() REQUIRES(mutex_);
  void CheckSilence();        // ends the connection if the peer was silent for too long
  Result<size_t> ReadSome();  // takes the mutex: another thread may be writing
  void Receive();
  void Handle(ControlFrame frame);
  void TellPartial();
  void Lose(Status cause);  // ends the connection and reports `cause`
  bool MayCallBack();       // after Start, before Close and the destructor; takes the mutex

  const Peer peer_;
  const ControlOptions options_;
  WakeFd wake_;
  std::atomic<size_t> max_payload_bytes_ = kMaxFrameBytes;

  Mutex mutex_;
  // Null once the connection is over. Used with the mutex held, except that the connection's
  // thread, which alone resets it, asks for its fd() without.
  std::unique_ptr<ControlStream> stream_;
  Wish wish_ GUARDED_BY(mutex_);
  // Set before wish_.started says so; from then on only the connection's thread uses them.
  Callbacks callbacks_;
  std::deque<OutgoingFrame> outbox_ GUARDED_BY(mutex_);
  size_t unsent_bytes_ GUARDED_BY(mutex_) = 0;      // of the frames in outbox_
  size_t front_sent_bytes_ GUARDED_BY(mutex_) = 0;  // how much of the first of them is sent
  bool wants_writable_ GUARDED_BY(mutex_) = false;  // the stream took no more bytes
  bool closing_ GUARDED_BY(mutex_) = false;
  bool said_all_ GUARDED_BY(mutex_) = false;  // closing, and everything is sent
  TimePoint last_sent_ GUARDED_BY(mutex_);
  // Why nothing can be sent any more; what the peer sent before is still read.
  Status lost_ GUARDED_BY(mutex_);

  // Used by the connection's thread only.
  Wish seen_;  // wish_, as the thread has last seen it
  ControlFrameDecoder decoder_;
  size_t told_partial_bytes_ = 0;  // what on_partial was called with
  std::string read_buffer_;
  bool over_ = false;
  TimePoint last_heard_;

  Mutex join_mutex_;  // Close may run on several threads, of which one joins
  std::thread thread_ GUARDED_BY(join_mutex_);  // last: it uses the members above
};

}  // namespace lamina
