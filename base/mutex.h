// Mutexes that say what they guard. clang checks it with -Wthread-safety, which finds a member that
// is read without its lock when it is compiled, not when it is raced for.
//
//   class Queue {
//     void Push(Item item) {
//       MutexLock lock(mutex_);
//       items_.push_back(std::move(item));
//     }
//     void Shrink() REQUIRES(mutex_);
//
//     Mutex mutex_;
//     std::deque<Item> items_ GUARDED_BY(mutex_);
//   };
//
// The analysis does not look into lambdas that wait: write `while (!ready_) changed_.Wait(lock);`.
// A lambda that runs with the lock held begins with mutex_.AssertHeld().
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/clock.h"

#if defined(__clang__)
#define THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define THREAD_ATTRIBUTE(x)  // gcc has no such analysis
#endif

// The member is read and written only by who holds the mutex.
#define GUARDED_BY(mutex) THREAD_ATTRIBUTE(guarded_by(mutex))
// The function is called only by who holds the mutex, or by who does not.
#define REQUIRES(mutex) THREAD_ATTRIBUTE(requires_capability(mutex))
#define EXCLUDES(mutex) THREAD_ATTRIBUTE(locks_excluded(mutex))
// The function's reasons are beyond the analysis; a comment gives them.
#define NOT_ANALYSED THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace lamina {

// Locked by MutexLock alone.
class THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // Tells the analysis, which cannot see it, that the calling thread holds the mutex. Does nothing.
  void AssertHeld() const THREAD_ATTRIBUTE(assert_capability(this)) {}

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds the mutex while it lives, except between Unlock and Lock.
class THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) THREAD_ATTRIBUTE(acquire_capability(mutex))
      : lock_(mutex.mutex_) {}
  ~MutexLock() THREAD_ATTRIBUTE(release_capability()) {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Lock() THREAD_ATTRIBUTE(acquire_capability()) { lock_.lock(); }
  void Unlock() THREAD_ATTRIBUTE(release_capability()) { lock_.unlock(); }

 private:
  friend class CondVar;
  std::unique_lock<std::mutex> lock_;
};

// Waits for a change of what a mutex guards. Waits may end early: callers look in a loop. Thread:
// any.
class CondVar {
 public:
  // REQUIRES: `lock` holds its mutex, which is unlocked while this waits.
  void Wait(MutexLock& lock) { changed_.wait(lock.lock_); }
  // False: the time is over.
  bool WaitUntil(MutexLock& lock, TimePoint latest) {
    return changed_.wait_until(lock.lock_, latest) == std::cv_status::no_timeout;
  }

  void NotifyOne() { changed_.notify_one(); }
  void NotifyAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace lamina
