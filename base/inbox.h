// A queue between threads whose consumer can sleep on a file descriptor together with sockets and fabrics.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace lamina {

// An eventfd that is readable while signalled.
class WakeFd {
 public:
  WakeFd();
  ~WakeFd();
  WakeFd(const WakeFd&) = delete;
  WakeFd& operator=(const WakeFd&) = delete;

  int fd() const { return fd_; }
  void Signal();  // Thread: any
  void Clear();   // Thread: consumer

 private:
  int fd_;
};

// Thread: Push from any, the rest from one consumer. fd() is readable while the queue is not empty.
template <typename T>
class Inbox {
 public:
  void Push(T item) {
    std::lock_guard lock(mutex_);
    if (items_.empty()) wake_.Signal();  // under the lock: a late signal would keep an empty queue readable, and its consumer spinning
    items_.push_back(std::move(item));
  }

  std::optional<T> TryPop() {
    std::lock_guard lock(mutex_);
    if (items_.empty()) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    if (items_.empty()) wake_.Clear();
    return item;
  }

  int fd() const { return wake_.fd(); }

 private:
  std::mutex mutex_;
  std::deque<T> items_;  // guarded by mutex_
  WakeFd wake_;
};

}  // namespace lamina
