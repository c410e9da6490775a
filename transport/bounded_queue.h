// A first-in first-out queue (a ring) whose memory is allocated once. Endpoints keep their
// outstanding posts in one.
#pragma once

#include <cstddef>
#include <vector>

namespace lamina {

// Thread: owner. Slots are reused and never destroyed before the queue, so a large T, or one that
// keeps its own memory, costs nothing per entry.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : slots_(capacity) {}

  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == slots_.size(); }
  size_t size() const { return size_; }

  // The i-th oldest entry. REQUIRES: i < size().
  T& operator[](size_t i) { return slots_[Wrap(begin_ + i)]; }
  T& front() { return slots_[begin_]; }  // REQUIRES: !empty()

  // Appends an entry, which still holds what its slot held before. REQUIRES: !full().
  T& PushSlot() { return slots_[Wrap(begin_ + size_++)]; }

  // REQUIRES: !empty().
  void Pop() {
    begin_ = Wrap(begin_ + 1);
    --size_;
  }

 private:
  // No modulo: a division would cost more than the rest of a post.
  size_t Wrap(size_t index) const { return index < slots_.size() ? index : index - slots_.size(); }

  std::vector<T> slots_;
  size_t begin_ = 0;
  size_t size_ = 0;
};

}  // namespace lamina
