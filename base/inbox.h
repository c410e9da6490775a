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

// Thread: Push from any, the rest from one consumer. fd() is readable whenever the queue may be non-empty.
template <typename T>
class Inbox {
 public:
  void Push(T item) {
    bool was_empty;
    {
      std::lock_guard lock(mutex_);
      was_empty = items_.empty();
      items_.push_back(std::move(item));
    }
    if (was_empty) wake_.Signal();
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
