#include "kernels/cpu/prefault.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/clock.h"
#include "base/host_memory.h"

namespace lamina {
namespace {

constexpr size_t kSmallPageBytes = 4096, kPieceBytes = size_t{2} << 20;
// Between two looks at how much memory the machine has left.
constexpr size_t kBytesBetweenLooks = size_t{64} << 20;

// False: the system cannot, or does not have the memory.
bool MakePagesOf(std::byte* begin, std::byte* end) {
  const auto first = reinterpret_cast<uintptr_t>(begin) / kSmallPageBytes * kSmallPageBytes;
  return madvise(reinterpret_cast<void*>(first), reinterpret_cast<uintptr_t>(end) - first,
                 MADV_POPULATE_WRITE) == 0;
}

}  // namespace

Prefault::Prefault(std::byte* memory, size_t num_strips, size_t strip_bytes, int64_t spare_bytes)
    : memory_(memory),
      num_strips_(num_strips),
      strip_bytes_(strip_bytes),
      spare_bytes_(spare_bytes),
      thread_([this] { Run(); }) {}

Prefault::~Prefault() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void Prefault::Reach(size_t bytes) {
  {
    MutexLock lock(mutex_);
    target_ = std::max(target_, std::min(bytes, strip_bytes_));
  }
  changed_.NotifyAll();
}

size_t Prefault::AwaitTarget(size_t made) {
  MutexLock lock(mutex_);
  while (target_ <= made && !stop_) changed_.Wait(lock);
  return target_;
}

void Prefault::Run() {
  for (size_t made = 0; made < strip_bytes_ && !stop_;) {
    const size_t until = std::min(AwaitTarget(made), made + kPieceBytes);
    if (!MakePages(made, until)) break;
    made = until;
  }
  has_ended_ = true;
}

bool Prefault::MakePages(size_t from, size_t until) {
  for (size_t strip = 0; strip < num_strips_ && !stop_; ++strip) {
    if (until_look_ < until - from) {
      if (AvailableHostBytes() < spare_bytes_) return false;
      until_look_ = kBytesBetweenLooks;
    }
    until_look_ -= until - from;
    std::byte* const begin = memory_ + strip * strip_bytes_;
    const TimePoint start = Clock::now();
    if (!MakePagesOf(begin + from, begin + until)) return false;
    // A low priority would not do instead: the thread would keep the lock of the process's mappings
    // while it waits for its turn.
    std::this_thread::sleep_for(Clock::now() - start);
  }
  return true;
}

}  // namespace lamina
