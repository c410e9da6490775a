// A queue between threads whose consumer can sleep on a file descriptor together with sockets and
// fabrics.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/status.h"

namespace lamina {

// An eventfd that is readable while signalled. Can be moved.
class WakeFd {
 public:
  // Ends the process if it is out of descriptors: for what is made when a program starts.
  WakeFd();
  static Result<WakeFd> Create();  // kOutOfSpace then: for what is made while it serves
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
  Inbox() = default;  // as WakeFd's
  explicit Inbox(WakeFd wake) : wake_(std::move(wake)) {}

  // kOutOfSpace if the process is out of descriptors.
  static Result<std::unique_ptr<Inbox>> Create() {
    LAMINA_ASSIGN_OR_RETURN(WakeFd wake, WakeFd::Create());
    return std::make_unique<Inbox>(std::move(wake));
  }

  void Push(T item) {
    std::lock_guard lock(mutex_);
    // Under the lock: a late signal would keep an empty queue readable, and its consumer spinning.
    if (items_.empty()) wake_.Signal();
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

  // Drops the items that `goes` is true of.
  template <typename Predicate>
  void EraseIf(const Predicate& goes) {
    std::lock_guard lock(mutex_);
    std::erase_if(items_, goes);
    if (items_.empty()) wake_.Clear();
  }

  int fd() const { return wake_.fd(); }

 private:
  std::mutex mutex_;
  std::deque<T> items_;  // guarded by mutex_
  WakeFd wake_;
};

}  // namespace lamina
