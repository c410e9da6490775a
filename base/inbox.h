// A queue between threads. It has a file descriptor that is readable while the queue is not empty,
// so that its consumer can sleep in one poll(2) on the queue, sockets and fabrics.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"

namespace lamina {

// An eventfd, readable from Signal to Clear. Owns the descriptor; can be moved.
class WakeFd {
 public:
  // Aborts if the process is out of descriptors: for objects that are made when a program starts.
  WakeFd();
  // Returns kOutOfSpace if the process is out of descriptors: for objects that are made later.
  static Result<WakeFd> Create();
  ~WakeFd();
  WakeFd(WakeFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  WakeFd& operator=(WakeFd&&) = delete;

  int fd() const { return fd_; }
  void Signal();  // Thread: any
  void Clear();   // Thread: consumer

 private:
  explicit WakeFd(int fd) : fd_(fd) {}

  int fd_;
};

// Thread: Push and EraseIf from any, the rest from one consumer. fd() is readable while the queue
// is not empty.
template <typename T>
class Inbox {
 public:
  // Aborts if the process is out of descriptors.
  Inbox() = default;
  explicit Inbox(WakeFd wake) : wake_(std::move(wake)) {}

  // Returns kOutOfSpace if the process is out of descriptors.
  static Result<std::unique_ptr<Inbox>> Create() {
    LAMINA_ASSIGN_OR_RETURN(WakeFd wake, WakeFd::Create());
    return std::make_unique<Inbox>(std::move(wake));
  }

  void Push(T item) {
    MutexLock lock(mutex_);
    empty_.store(false, std::memory_order_release);  // before the signal, so that who wakes sees it
    // Under the lock, because a signal after the consumer's Clear would leave an empty queue
    // readable, and the consumer would spin.
    if (items_.empty()) wake_.Signal();
    items_.push_back(std::move(item));
  }

  // Whether there is nothing to take; takes no lock, for loops that poll. Thread: consumer.
  bool empty() const { return empty_.load(std::memory_order_acquire); }

  std::optional<T> TryPop() {
    if (empty()) return std::nullopt;
    MutexLock lock(mutex_);
    if (items_.empty()) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    ClearIfEmpty();
    return item;
  }

  // Drops the items that `goes` is true of.
  template <typename Predicate>
  void EraseIf(const Predicate& goes) {
    MutexLock lock(mutex_);
    std::erase_if(items_, goes);
    ClearIfEmpty();
  }

  int fd() const { return wake_.fd(); }

 private:
  void ClearIfEmpty() REQUIRES(mutex_) {
    if (!items_.empty()) return;
    empty_.store(true, std::memory_order_relaxed);
    wake_.Clear();
  }

  Mutex mutex_;
  std::deque<T> items_ GUARDED_BY(mutex_);
  std::atomic<bool> empty_{true};  // written under the lock
  WakeFd wake_;
};

}  // namespace lamina
