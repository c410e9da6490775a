// A first-in first-out queue whose memory is allocated once.
#pragma once

#include <cstddef>
#include <vector>

namespace lamina {

// Thread: owner. Slots are reused, so T may be large.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : slots_(capacity) {}

  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == slots_.size(); }
  size_t size() const { return size_; }

  // The i-th oldest. REQUIRES: i < size().
  T& operator[](size_t i) { return slots_[Wrap(begin_ + i)]; }
  T& front() { return slots_[begin_]; }

  // A new youngest entry, which still holds what its slot held before. REQUIRES: !full().
  T& PushSlot() { return slots_[Wrap(begin_ + size_++)]; }

  // REQUIRES: !empty().
  void Pop() {
    begin_ = Wrap(begin_ + 1);
    --size_;
  }

 private:
  size_t Wrap(size_t index) const {
    return index < slots_.size() ? index : index - slots_.size();
  }  // a division would cost more than a post

  std::vector<T> slots_;
  size_t begin_ = 0;
  size_t size_ = 0;
};

}  // namespace lamina
