// The memory that bodies of requests hold until they are parsed, in all of a server's connections
// together.
#pragma once

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "api/worker_pool.h"

namespace lamina {

// Counts the bytes of bodies and gives memory back to the system. Thread: the server's; a Share may
// be destroyed on any thread.
class BodyMemory {
 public:
  // `give_back` returns freed memory to the system. It is called on a thread of its own.
  explicit BodyMemory(
      size_t limit_bytes, std::function<void()> give_back = [] { malloc_trim(0); })
      : limit_bytes_(limit_bytes), give_back_(std::move(give_back)) {}

  // What one body holds. It counts until the share is destroyed.
  class Share {
   public:
    explicit Share(std::shared_ptr<BodyMemory> memory) : memory_(std::move(memory)) {}
    ~Share() { Set(0); }
    Share(Share&& other) noexcept
        : memory_(std::move(other.memory_)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&&) = delete;

    void Set(size_t bytes) {
      if (memory_ == nullptr) return;  // moved from
      memory_->used_bytes_ += bytes;
      const size_t used = memory_->used_bytes_ -= bytes_;
      if (used > memory_->peak_bytes_) memory_->peak_bytes_ = used;
      bytes_ = bytes;
    }
    size_t bytes() const { return bytes_; }

   private:
    std::shared_ptr<BodyMemory> memory_;  // shared: requests may outlive the server's connections
    size_t bytes_ = 0;
  };

  bool full() const { return used_bytes_ > limit_bytes_; }
  size_t limit_bytes() const { return limit_bytes_; }

  // Gives freed memory back to the system if much was used since the last time and little is used
  // now. Without it the allocator would keep for good what an attack or a burst of long prompts
  // took. That is done on a thread of its own, because it takes a second for gigabytes; a call
  // while it is being done does nothing.
  void GiveBack() {
    if (peak_bytes_ < kMuchBytes || used_bytes_ > kLittleBytes || giving_back_.exchange(true))
      return;
    // What comes from here on may be too late, and counts for the next time.
    peak_bytes_ = used_bytes_.load();
    worker_.Post([this] {
      give_back_();
      giving_back_ = false;
    });
  }

 private:
  static constexpr size_t kMuchBytes = size_t{16} << 20;  // two of the longest bodies
  // What many ordinary requests have under way.
  static constexpr size_t kLittleBytes = size_t{1} << 20;

  const size_t limit_bytes_;
  const std::function<void()> give_back_;
  std::atomic<size_t> used_bytes_ = 0;
  std::atomic<size_t> peak_bytes_ = 0;  // since memory was given back
  std::atomic<bool> giving_back_ = false;
  WorkerPool worker_{1};  // goes first: it uses what stands above
};

}  // namespace lamina
