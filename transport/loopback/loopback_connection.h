// The state that the two ends of a loopback connection share, and the waker by which one end wakes
// the thread of the other.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "base/inbox.h"
#include "base/mutex.h"
#include "transport/mapping.h"

namespace lamina {

// How many posts whose kSent was not polled, and how many notifications that the peer has not
// polled, an end may have.
inline constexpr size_t kLoopbackOutstanding = 256;

// Wakes the thread that sleeps on one fabric. Thread: any.
class LoopbackWaker {
 public:
  int fd() const { return wake_.fd(); }

  // From here on the next Notify makes fd() readable. Who sleeps calls Arm and then looks for work;
  // who makes work calls Notify afterwards: so one of the two sees the other, and no wake-up is
  // lost.
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

// One end, as its peer sees it. `window`, `hello` and `waker` are set before the connection is
// complete; the other members are guarded by the connection's mutex.
struct LoopbackEnd {
  Mapping window;                        // the peer writes into it
  std::string hello;                     // what this end said
  std::shared_ptr<LoopbackWaker> waker;  // shared: a peer may notify a fabric that is going away

  std::deque<uint32_t> notifications;  // for this end, not polled yet
  bool closed = false;                 // this end is gone
  // A post of this end got kTryAgain because the peer had too many notifications.
  bool wants_room = false;
};

// Shared by the endpoints of both ends: either may be destroyed first, while the other still writes
// into its window.
struct LoopbackConnection {
  Mutex mutex;
  LoopbackEnd ends[2];  // 0: the connecting end, 1: the accepting end
};

}  // namespace lamina
