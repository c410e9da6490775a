// The time that the calling thread has computed, which other load on the machine adds little to.
#pragma once

#include <ctime>

namespace lamina::testing {

inline double ThreadSeconds() {
  timespec used;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

}  // namespace lamina::testing
