// What answers hold in memory until they are sent: text and log-probabilities, of all requests
// together.
#pragma once

#include <cstddef>
#include <utility>

namespace lamina {

// Counts bytes; it allocates none. It must outlive its shares. Thread: the server's.
class AnswerMemory {
 public:
  explicit AnswerMemory(size_t limit_bytes) : limit_bytes_(limit_bytes) {}
  AnswerMemory(const AnswerMemory&) = delete;
  AnswerMemory& operator=(const AnswerMemory&) = delete;

  size_t limit_bytes() const { return limit_bytes_; }
  size_t held_bytes() const { return held_bytes_; }

  // What one answer holds. It is given back when the share is destroyed.
  class Share {
   public:
    explicit Share(AnswerMemory& memory) : memory_(&memory) {}
    Share(Share&& other) noexcept
        : memory_(other.memory_), bytes_(std::exchange(other.bytes_, 0)) {}
    ~Share() { memory_->held_bytes_ -= bytes_; }
    Share& operator=(Share&&) = delete;

    // Counts that the answer now holds `added` bytes more and `removed` bytes less. Returns false
    // if all answers together hold more than the limit now; the change is counted in that case too.
    bool Change(size_t added, size_t removed) {
      bytes_ += added - removed;
      memory_->held_bytes_ += added - removed;
      return memory_->held_bytes_ <= memory_->limit_bytes_;
    }

   private:
    AnswerMemory* memory_;
    size_t bytes_ = 0;
  };

 private:
  const size_t limit_bytes_;
  size_t held_bytes_ = 0;
};

}  // namespace lamina
