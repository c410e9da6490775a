// The memory that bodies of requests hold until they are parsed, in all of a server's connections
// together.
#pragma once

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace lamina {

// Thread: the server's; a Share may be destroyed by any.
class BodyMemory {
 public:
  explicit BodyMemory(size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // What one body holds. Counts until it is destroyed.
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

  // The allocator keeps what was freed, and an attack or a burst of long prompts would be kept for
  // good: after much was used, and when little is, it goes back to the system. Takes a few
  // milliseconds then.
  void GiveBack() {
    if (peak_bytes_ < kMuchBytes || used_bytes_ > kLittleBytes) return;
    malloc_trim(0);
    peak_bytes_ = used_bytes_.load();
  }

 private:
  static constexpr size_t kMuchBytes = size_t{16} << 20;  // two of the longest bodies
  // What many ordinary requests have under way.
  static constexpr size_t kLittleBytes = size_t{1} << 20;

  const size_t limit_bytes_;
  std::atomic<size_t> used_bytes_ = 0;
  std::atomic<size_t> peak_bytes_ = 0;  // since memory was given back
};

}  // namespace lamina
