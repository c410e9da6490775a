// Which slice a runner is in, where the weights of slices take turns in memory.
#pragma once

namespace lamina {

// Ring: WeightRing, or what has the same Enter, Leave, AddVisitor and RemoveVisitor by slices.
// Thread: the ring's.
template <typename Ring>
class SliceTurn {
 public:
  SliceTurn() = default;
  ~SliceTurn() {
    Leave();
    if (ring_ != nullptr) ring_->RemoveVisitor();
  }
  SliceTurn(const SliceTurn&) = delete;
  SliceTurn& operator=(const SliceTurn&) = delete;

  // Borrows the ring. Null, or before this call: all weights are in memory, and nothing below does
  // anything. Once at most.
  void Begin(Ring* ring) {
    ring_ = ring;
    if (ring_ != nullptr) ring_->AddVisitor();
  }

  // Has the slice's weights in memory until Leave, or until another slice is entered.
  void Enter(int slice) {
    if (ring_ == nullptr || entered_ == slice) return;
    Leave();
    ring_->Enter(slice);
    entered_ = slice;
  }
  void Leave() {
    if (entered_ >= 0) ring_->Leave(entered_);
    entered_ = -1;
  }

 private:
  Ring* ring_ = nullptr;
  int entered_ = -1;  // -1: none
};

}  // namespace lamina
