// What the two ends of a loopback connection share, and how one end wakes the thread of the other.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "base/inbox.h"
#include "base/mutex.h"
#include "transport/mapping.h"

namespace lamina {

// Posts, and notifications that the peer has not polled.
inline constexpr size_t kLoopbackOutstanding = 256;

// Wakes the thread that sleeps on one fabric. Thread: any.
class LoopbackWaker {
 public:
  int fd() const { return wake_.fd(); }

  // From here on the next Notify makes fd() readable. Whoever arms looks for work after it, whoever
  // makes work notifies after it: one of the two sees the other.
  void Arm() {
    MutexLock lock(mutex_);
    wake_.Clear();
    armed_ = true;
  }

  void Notify() {
    MutexLock lock(mutex_);
    if (armed_) wake_.Signal();
    armed_ = false;
  }

 private:
  Mutex mutex_;
  bool armed_ GUARDED_BY(mutex_) = false;
  WakeFd wake_;
};

// One end, as its peer sees it. Everything but `window`, `hello` and `waker` is guarded by the
// connection's mutex.
struct LoopbackEnd {
  Mapping window;                        // the peer writes into it
  std::string hello;                     // what this end said
  std::shared_ptr<LoopbackWaker> waker;  // shared: a peer may notify a fabric that is going away

  std::deque<uint32_t> notifications;  // for this end
  bool closed = false;                 // this end is gone
  // This end got kTryAgain because the peer's notifications were full.
  bool wants_room = false;
};

// Shared by both ends: either may go first, and the other may still be writing into the window of
// the one that went.
struct LoopbackConnection {
  Mutex mutex;
  LoopbackEnd ends[2];  // 0 connected, 1 accepted
};

}  // namespace lamina
