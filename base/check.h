// Checks of what only a mistake in lamina's own code can break. Bytes from a peer, a file or a
// person are answered with a Status instead and never reach a check.
#pragma once

#include <fmt/format.h>

#include <string>

namespace lamina {

// Prints where and why to stderr and ends the process with a core.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const std::string& message);

}  // namespace lamina

// Ends the process unless `condition` holds. What follows it is a format string and its arguments,
// which are only looked at then: which call it was, what it was given and what it expects.
#define LAMINA_CHECK(condition, ...)                                                     \
  do {                                                                                   \
    if (!(condition)) [[unlikely]]                                                       \
      ::lamina::CheckFailed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)
