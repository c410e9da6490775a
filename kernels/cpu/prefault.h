// Gives memory its pages before they are used. The system clears a page when it is first written,
// which takes a huge page half a millisecond or more. A KV cache would pay that for all layers and
// heads at once whenever its slots reach the next pages, and all sequences would wait for it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "base/mutex.h"

namespace lamina {

// A thread that has the system make the pages of a mapping of `num_strips` equal parts, of each
// from its beginning on, as far as it is told. It takes half of a core at most, and stops for good
// when the machine has less than `spare_bytes` left: then pages come when they are first written,
// as without this. It changes no bytes, so the memory may be used meanwhile. Thread: any.
class Prefault {
 public:
  static constexpr int64_t kSpareBytes = int64_t{1} << 30;

  // Borrows the memory.
  Prefault(std::byte* memory, size_t num_strips, size_t strip_bytes,
           int64_t spare_bytes = kSpareBytes);
  // Ends the thread, at most a few pages later.
  ~Prefault();
  Prefault(const Prefault&) = delete;
  Prefault& operator=(const Prefault&) = delete;

  // The first `bytes` of every strip are to have pages. Does not wait for them.
  void Reach(size_t bytes);

  // It makes no more pages: all are there, or it has stopped for good.
  bool has_ended() const { return has_ended_; }

 private:
  void Run();
  // [from, until) of every strip. False: it is to stop for good.
  bool MakePages(size_t from, size_t until);
  size_t AwaitTarget(size_t made);

  std::byte* const memory_;
  const size_t num_strips_, strip_bytes_;
  const int64_t spare_bytes_;
  size_t until_look_ = 0;  // bytes until it looks again at what the machine has left; the thread's
  std::atomic<bool> stop_{false}, has_ended_{false};
  Mutex mutex_;
  CondVar changed_;
  size_t target_ GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace lamina
