// What a stretch of code asks of the allocator, of locks and of the kernel, counted from outside.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/status.h"

namespace lamina {

struct CallCounts {
  // Malloc, calloc, realloc, memalign and what stands on them, in any library.
  int64_t allocations = 0;
  // Pthread mutexes, spin locks and read-write locks taken, by the library that took them.
  std::map<std::string, int64_t> locks = {};
  std::map<int64_t, int64_t> system_calls = {};  // by number
  int64_t num_locks() const;
  int64_t num_system_calls() const;
  std::string ToString() const;
};

// In the child that CountCalls makes: calls between Start and Stop count, if this thread makes
// them.
class CallCounter {
 public:
  virtual ~CallCounter() = default;
  virtual void Start() = 0;
  virtual void Stop() = 0;
};

// Forks, runs `body` in the child under ptrace and returns what counted. kInternal if the body
// returned false or the child died. kNotFound in builds with sanitizers, which have an allocator
// and system calls of their own.
Result<CallCounts> CountCalls(const std::function<bool(CallCounter&)>& body);

}  // namespace lamina
