#include "kernels/cuda/emulation/simt.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/context/detail/fcontext.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define LAMINA_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LAMINA_ADDRESS_SANITIZER 1
#endif
#endif
#ifdef LAMINA_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace lamina::cuda::emulation {
namespace {

using boost::context::detail::fcontext_t;
using boost::context::detail::transfer_t;

constexpr size_t kStackBytes = 256 << 10;  // sanitizers make stack frames large
constexpr size_t kGuardBytes = 4096;
constexpr unsigned kWarp = 32;

std::atomic<uint64_t> the_order{0};

// Tell AddressSanitizer which stack is in use, before and after a switch. `leaving`: where it keeps
// its bookkeeping of the stack that is left; null if that stack will not be used again.
void BeginSwitch([[maybe_unused]] void** leaving, [[maybe_unused]] const void* bottom,
                 [[maybe_unused]] size_t bytes) {
#ifdef LAMINA_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(leaving, bottom, bytes);
#endif
}
void EndSwitch([[maybe_unused]] void* entered, [[maybe_unused]] const void** left_bottom,
               [[maybe_unused]] size_t* left_bytes) {
#ifdef LAMINA_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(entered, left_bottom, left_bytes);
#endif
}

// The stack of a fiber, with a page below it that traps an overflow. Later blocks use it again.
class Stack {
 public:
  Stack() {
    memory_ = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_ == MAP_FAILED || mprotect(memory_, kGuardBytes, PROT_NONE) != 0) std::abort();
  }
  ~Stack() { munmap(memory_, kGuardBytes + kStackBytes); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  std::byte* bottom() const { return static_cast<std::byte*>(memory_) + kGuardBytes; }

  // Removes the red zones of AddressSanitizer that the frames of a fiber which did not end have
  // left.
  void Clean() const {
#ifdef LAMINA_ADDRESS_SANITIZER
    __asan_unpoison_memory_region(bottom(), kStackBytes);
#endif
  }

 private:
  void* memory_;
};

enum class State { kReady, kAtBarrier, kAtWarp, kDone };

// An asynchronous copy of one thread.
struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

// A thread of the block.
struct Fiber {
  fcontext_t context = nullptr;
  void* bookkeeping = nullptr;  // AddressSanitizer's
  const Stack* stack = nullptr;
  State state = State::kReady;
  uint3 index;
  SourceLine where;  // where it waits
  // The arguments and the result of WaitForWarp, valid in state kAtWarp.
  WarpFunction function{};
  unsigned mask = 0;
  uint64_t value = 0;
  unsigned source_lane = 0;
  uint64_t result = 0;

  std::vector<Copy> copies;    // in flight, oldest first
  std::vector<size_t> groups;  // for each committed group, how many of them it has
  size_t uncommitted = 0;      // copies that are in no group yet
};

std::string Place(const SourceLine& where) {
  const std::string file = where.file;
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(where.line);
}

bool SamePlace(const SourceLine& a, const SourceLine& b) {
  return a.line == b.line && std::strcmp(a.file, b.file) == 0;
}

// Runs one block on the calling thread of the host. Fibers take turns: each runs until it waits for
// others or ends, and what it waits for is completed by the last one to come, or, when no fiber can
// go on, by Run.
class Block {
 public:
  Block(dim3 size, const std::function<void()>& thread, uint64_t order)
      : thread_(thread), eager_copies_(order % 2 == 1) {
    static thread_local std::vector<std::unique_ptr<Stack>> stacks;
    const unsigned count = size.x * size.y * size.z;
    while (stacks.size() < count) stacks.push_back(std::make_unique<Stack>());
    fibers_.resize(count);
    gathered_.resize(count / kWarp + 1);
    for (unsigned i = 0; i < count; ++i) {
      fibers_[i].stack = stacks[i].get();
      fibers_[i].index = {i % size.x, i / size.x % size.y, i / size.x / size.y};
    }
    turns_.resize(count);
    std::iota(turns_.begin(), turns_.end(), 0u);
    if (order != 0)
      random_.seed(order * 1000003 + coordinates.block.x + 7919 * coordinates.block.y +
                   104729 * coordinates.block.z);
    shuffles_ = order != 0;
  }

  // Runs all threads to their end. Returns "" or what went wrong.
  std::string Run() {
    running_ = this;
    for (Fiber& fiber : fibers_) {
      fiber.context = boost::context::detail::make_fcontext(fiber.stack->bottom() + kStackBytes,
                                                            kStackBytes, &Block::Enter);
    }
    while (failure_.empty() && done_ < fibers_.size()) {
      if (shuffles_) std::shuffle(turns_.begin(), turns_.end(), random_);
      bool any_ran = false;
      for (const unsigned i : turns_) {
        Fiber& fiber = fibers_[i];
        if (fiber.state != State::kReady) continue;
        any_ran = true;
        Resume(fiber);
        if (!failure_.empty()) break;
      }
      if (failure_.empty() && !any_ran) ReleaseBarrier();
    }
    running_ = nullptr;
    for (size_t i = 0; i < fibers_.size() && !failure_.empty(); ++i) fibers_[i].stack->Clean();
    return failure_;
  }

  // The block of the running fiber. The functions below are called by that fiber.
  static Block& running() { return *running_; }

  void WaitForBlock(SourceLine where) {
    current_->where = where;
    current_->state = State::kAtBarrier;
    Suspend();
  }

  uint64_t WaitForWarp(WarpFunction function, unsigned mask, uint64_t value, unsigned source_lane,
                       SourceLine where) {
    Fiber& fiber = *current_;
    const size_t number = static_cast<size_t>(&fiber - fibers_.data()),
                 first = number / kWarp * kWarp;
    fiber.where = where;
    fiber.state = State::kAtWarp;
    fiber.function = function;
    fiber.mask = mask;
    fiber.value = value;
    fiber.source_lane = source_lane;
    if ((mask >> (number - first) & 1) == 0) {
      failure_ = Name(fiber) + " is not in the mask of its own warp function at " + Place(where);
    } else {
      CompleteWarp(fiber, first);
    }
    // The last lane to come need not wait.
    if (fiber.state != State::kReady || !failure_.empty()) Suspend();
    return fiber.result;
  }

  void StartCopy(Copy copy) {
    if (eager_copies_) std::memcpy(copy.to, copy.from, copy.bytes);
    current_->copies.push_back(copy);
    ++current_->uncommitted;
  }
  void CommitCopies() { current_->groups.push_back(std::exchange(current_->uncommitted, 0)); }
  void WaitForCopies(int groups) {
    Fiber& fiber = *current_;
    size_t done = 0, copies = 0;
    while (std::ssize(fiber.groups) - static_cast<int64_t>(done) > groups)
      copies += fiber.groups[done++];
    for (size_t i = 0; i < copies && !eager_copies_; ++i)
      std::memcpy(fiber.copies[i].to, fiber.copies[i].from, fiber.copies[i].bytes);
    fiber.copies.erase(fiber.copies.begin(), fiber.copies.begin() + static_cast<int64_t>(copies));
    fiber.groups.erase(fiber.groups.begin(), fiber.groups.begin() + static_cast<int64_t>(done));
  }

 private:
  // Where a fiber begins. It never returns.
  static void Enter(transfer_t from) {
    Block& block = *static_cast<Block*>(from.data);
    EndSwitch(nullptr, &block.host_bottom_, &block.host_bytes_);
    block.host_ = from.fctx;
    block.thread_();
    block.current_->state = State::kDone;
    BeginSwitch(nullptr, block.host_bottom_, block.host_bytes_);
    boost::context::detail::jump_fcontext(block.host_, nullptr);
  }

  // Switches from the host to a fiber, until that waits or ends.
  void Resume(Fiber& fiber) {
    current_ = &fiber;
    coordinates.thread = fiber.index;
    BeginSwitch(&host_bookkeeping_, fiber.stack->bottom(), kStackBytes);
    const transfer_t back = boost::context::detail::jump_fcontext(fiber.context, this);
    EndSwitch(host_bookkeeping_, nullptr, nullptr);
    fiber.context = back.fctx;
    if (fiber.state == State::kDone) ++done_;
  }

  // Switches from the running fiber to the host, until that resumes it. After a failure it does
  // not.
  void Suspend() {
    Fiber& fiber = *current_;
    BeginSwitch(&fiber.bookkeeping, host_bottom_, host_bytes_);
    host_ = boost::context::detail::jump_fcontext(host_, nullptr).fctx;
    EndSwitch(fiber.bookkeeping, nullptr, nullptr);
  }

  // Completes a warp function if all lanes of its mask are there: sets their results and lets them
  // go on. last: the lane that came just now; first: the number of the warp's first thread.
  void CompleteWarp(const Fiber& last, size_t first) {
    uint64_t ballot = 0;
    // Downwards: in order 0 the highest lane comes last, so until then the first check fails.
    for (unsigned lane = kWarp; lane-- > 0;) {
      if ((last.mask >> lane & 1) == 0) continue;
      if (first + lane >= fibers_.size()) return;
      const Fiber& other = fibers_[first + lane];
      if (other.state != State::kAtWarp) return;
      if (other.mask != last.mask || other.function != last.function ||
          !SamePlace(other.where, last.where))
        return;
      if (other.value != 0) ballot |= uint64_t{1} << lane;
    }
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if ((last.mask >> lane & 1) == 0) continue;
      Fiber& fiber = fibers_[first + lane];
      if (fiber.function == WarpFunction::kShuffle) {
        if ((last.mask >> fiber.source_lane & 1) == 0) {
          failure_ = Name(fiber) + " reads lane " + std::to_string(fiber.source_lane) +
                     ", which is not in the mask, at " + Place(fiber.where);
          return;
        }
        fiber.result = fibers_[first + fiber.source_lane].value;
      } else if (fiber.function == WarpFunction::kGather) {
        gathered_[first / kWarp][lane] = fiber.value;
        fiber.result = reinterpret_cast<uint64_t>(gathered_[first / kWarp].data());
      } else {
        fiber.result = ballot;
      }
    }
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if ((last.mask >> lane & 1) != 0) fibers_[first + lane].state = State::kReady;
    }
  }

  // Called when no thread can go on. If all wait at the same barrier they go on; else this is a
  // deadlock, and the launch fails with what two of them wait for.
  void ReleaseBarrier() {
    const Fiber& one = *std::find_if(fibers_.begin(), fibers_.end(),
                                     [](const Fiber& f) { return f.state != State::kDone; });
    for (const Fiber& other : fibers_) {
      if (one.state == State::kAtBarrier && other.state == State::kAtBarrier &&
          SamePlace(one.where, other.where))
        continue;
      if (&one == &other) continue;
      failure_ = Name(one) + " waits " + Waits(one) + ", while " + Name(other) + " " +
                 (other.state == State::kDone ? "has ended" : "waits " + Waits(other));
      return;
    }
    if (one.state != State::kAtBarrier) {
      failure_ = Name(one) + " waits " + Waits(one);
      return;
    }
    for (Fiber& fiber : fibers_) fiber.state = State::kReady;
  }

  // In words, what a fiber waits for.
  std::string Waits(const Fiber& fiber) const {
    if (fiber.state == State::kAtBarrier) return "for the block at " + Place(fiber.where);
    char mask[16];
    std::snprintf(mask, sizeof(mask), "0x%08x", fiber.mask);
    return std::string("for the lanes ") + mask + " at " + Place(fiber.where);
  }

  static std::string Name(const Fiber& fiber) {
    const auto triple = [](const uint3& at) {
      return "(" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " +
             std::to_string(at.z) + ")";
    };
    return "thread " + triple(fiber.index) + " of block " + triple(coordinates.block);
  }

  static thread_local Block* running_;

  const std::function<void()>& thread_;
  const bool eager_copies_;
  bool shuffles_ = false;
  std::mt19937_64 random_;
  std::vector<Fiber> fibers_;
  std::vector<std::array<uint64_t, kWarp>> gathered_;  // by warp: the values that Gather returns
  std::vector<unsigned> turns_;                        // the order in which fibers are resumed
  Fiber* current_ = nullptr;                           // the running fiber
  size_t done_ = 0;                                    // fibers that have ended
  std::string failure_;
  fcontext_t host_ = nullptr;  // the context that called Run, and its stack
  void* host_bookkeeping_ = nullptr;
  const void* host_bottom_ = nullptr;
  size_t host_bytes_ = 0;
};

thread_local Block* Block::running_ = nullptr;

// The shared memory of a block, full of NaN. It has exactly the size that was asked for, so that
// AddressSanitizer sees accesses beyond it.
class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes) {
    if (posix_memalign(&data_, 128, bytes) != 0) std::abort();
    std::memset(data_, 0xff, bytes);
  }
  ~SharedMemory() { std::free(data_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

}  // namespace

void SetOrder(uint64_t order) { the_order = order; }

std::string RefusedLaunch(dim3 grid, dim3 block, size_t shared_bytes) {
  const auto refused = [](const char* what, uint64_t n, uint64_t limit) {
    return n >= 1 && n <= limit ? ""
                                : std::string(what) + " " + std::to_string(n) +
                                      ", allowed are 1 to " + std::to_string(limit);
  };
  for (const std::string& reason :
       {refused("grid.x", grid.x, 0x7fffffff), refused("grid.y", grid.y, 65535),
        refused("grid.z", grid.z, 65535), refused("block.x", block.x, 1024),
        refused("block.y", block.y, 1024), refused("block.z", block.z, 64),
        refused("threads per block", uint64_t{block.x} * block.y * block.z, 1024),
        refused("bytes of shared memory + 1", shared_bytes + 1, (227 << 10) + 1)}) {
    if (!reason.empty()) return reason;
  }
  return "";
}

std::string RunGrid(dim3 grid, dim3 block, size_t shared_bytes,
                    const std::function<void()>& thread) {
  const uint64_t order = the_order;
  coordinates.block_size = block;
  coordinates.grid_size = grid;
  const uint64_t num_blocks = uint64_t{grid.x} * grid.y * grid.z;
  for (uint64_t i = 0; i < num_blocks; ++i) {
    coordinates.block = {static_cast<unsigned>(i % grid.x),
                         static_cast<unsigned>(i / grid.x % grid.y),
                         static_cast<unsigned>(i / grid.x / grid.y)};
    const SharedMemory shared(shared_bytes);
    coordinates.shared = shared.data();
    std::string failure = Block(block, thread, order).Run();
    if (!failure.empty()) return failure;
  }
  return "";
}

void WaitForBlock(SourceLine where) { Block::running().WaitForBlock(where); }
uint64_t WaitForWarp(WarpFunction function, unsigned mask, uint64_t value, unsigned source_lane,
                     SourceLine where) {
  return Block::running().WaitForWarp(function, mask, value, source_lane, where);
}
void StartCopy(void* to, const void* from, size_t bytes) {
  Block::running().StartCopy({to, from, bytes});
}
void CommitCopies() { Block::running().CommitCopies(); }
void WaitForCopies(int groups) { Block::running().WaitForCopies(groups); }

}  // namespace lamina::cuda::emulation
