#include "tests/support/call_counts.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define LAMINA_CANNOT_COUNT
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LAMINA_CANNOT_COUNT
#endif

namespace lamina {
namespace {

template <typename Counts>
int64_t Sum(const Counts& counts) {
  int64_t sum = 0;
  for (const auto& [what, count] : counts) sum += count;
  return sum;
}

}  // namespace

int64_t CallCounts::num_locks() const { return Sum(locks); }

int64_t CallCounts::num_system_calls() const { return Sum(system_calls); }

std::string CallCounts::ToString() const {
  std::string text = std::to_string(allocations) + " allocations, " + std::to_string(num_locks()) +
                     " locks, " + std::to_string(num_system_calls()) + " system calls";
  for (const auto& [library, count] : locks)
    text += "; locks in " + library + ": " + std::to_string(count);
  for (const auto& [number, count] : system_calls)
    text += "; system call " + std::to_string(number) + ": " + std::to_string(count);
  return text;
}

#ifdef LAMINA_CANNOT_COUNT

Result<CallCounts> CountCalls(const std::function<bool(CallCounter&)>& /*body*/) {
  return NotFound("sanitizers have an allocator and system calls of their own");
}

#else

namespace {

// Shared between the child, which counts, and its parent, which looks at is_counting whenever the
// child enters the kernel.
struct SharedCounts {
  struct Library {
    const void* base = nullptr;
    char path[200] = {};
    int64_t locks = 0;
  };
  std::atomic<bool> is_counting{false};
  int64_t allocations = 0;
  Library libraries[16];  // the last takes those for which there is no room
};

thread_local SharedCounts* counts_of_this_thread = nullptr;

bool IsCounting() {
  return counts_of_this_thread != nullptr &&
         counts_of_this_thread->is_counting.load(std::memory_order_relaxed);
}

class SharedCounter final : public CallCounter {
 public:
  explicit SharedCounter(SharedCounts& counts) : counts_(counts) {}
  void Start() override {
    counts_of_this_thread = &counts_;
    counts_.is_counting = true;
  }
  void Stop() override { counts_.is_counting = false; }

 private:
  SharedCounts& counts_;
};

// Lets the stopped child run to its next stop. False once it has ended; `status` is then its exit
// status.
bool RunToNextStop(pid_t child, int signal, int& status) {
  if (ptrace(PTRACE_SYSCALL, child, nullptr, signal) != 0) return false;
  return waitpid(child, &status, __WALL) == child && WIFSTOPPED(status);
}

// Counts until the child has ended; its wait status.
int Trace(pid_t child, const SharedCounts& shared, CallCounts& counts) {
  int status = 0;
  waitpid(child, &status, __WALL);
  ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  int signal = 0;
  while (RunToNextStop(child, signal, status)) {
    const bool in_kernel = WSTOPSIG(status) == (SIGTRAP | 0x80);
    signal = in_kernel ? 0 : WSTOPSIG(status);
    if (!in_kernel || !shared.is_counting) continue;
    __ptrace_syscall_info info{};
    ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof(info), &info);
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
      ++counts.system_calls[static_cast<int64_t>(info.entry.nr)];
  }
  return status;
}

}  // namespace

Result<CallCounts> CountCalls(const std::function<bool(CallCounter&)>& body) {
  void* const memory = mmap(nullptr, sizeof(SharedCounts), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return OutOfSpace("no memory to count in");
  auto* const shared = new (memory) SharedCounts;
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(2);
    raise(SIGSTOP);
    SharedCounter counter(*shared);
    _exit(body(counter) ? 0 : 1);
  }
  CallCounts counts;
  const int status = Trace(child, *shared, counts);
  counts.allocations = shared->allocations;
  for (const SharedCounts::Library& library : shared->libraries) {
    if (library.locks > 0) counts.locks[library.path] += library.locks;
  }
  munmap(memory, sizeof(SharedCounts));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return counts;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
    return InternalError("the child may not be traced");
  return InternalError("the child ended with wait status " + std::to_string(status));
}

#endif

}  // namespace lamina

#ifndef LAMINA_CANNOT_COUNT

// These take the place of the C library's in the whole program, so that the calls of every library
// are seen.
namespace {

void CountAllocation() {
  if (lamina::IsCounting()) ++lamina::counts_of_this_thread->allocations;
}

void CountLockOf(const void* caller) {
  Dl_info info{};
  dladdr(caller, &info);
  auto* library = lamina::counts_of_this_thread->libraries;
  while (library->base != nullptr && library->base != info.dli_fbase &&
         library != std::end(lamina::counts_of_this_thread->libraries) - 1) {
    ++library;
  }
  if (library->base == nullptr) {
    library->base = info.dli_fbase;
    std::strncpy(library->path, info.dli_fname == nullptr ? "?" : info.dli_fname,
                 sizeof(library->path) - 1);
  }
  ++library->locks;
}

template <typename Function>
int CountLock(Function*& next, const char* name, auto* lock, const void* caller) {
  if (lamina::IsCounting()) CountLockOf(caller);
  if (next == nullptr) next = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
  return next(lock);
}

}  // namespace

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  CountAllocation();
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  CountAllocation();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  CountAllocation();
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  CountAllocation();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}

#define LAMINA_COUNT_LOCK(name, type)                                 \
  int name(type* lock) {                                              \
    static int (*next)(type*) = nullptr;                              \
    return CountLock(next, #name, lock, __builtin_return_address(0)); \
  }
LAMINA_COUNT_LOCK(pthread_mutex_lock, pthread_mutex_t)
LAMINA_COUNT_LOCK(pthread_mutex_trylock, pthread_mutex_t)
LAMINA_COUNT_LOCK(pthread_rwlock_rdlock, pthread_rwlock_t)
LAMINA_COUNT_LOCK(pthread_rwlock_wrlock, pthread_rwlock_t)
LAMINA_COUNT_LOCK(pthread_spin_lock, pthread_spinlock_t)
LAMINA_COUNT_LOCK(pthread_spin_trylock, pthread_spinlock_t)
}

#endif
