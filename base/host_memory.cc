#include "base/host_memory.h"

#include <cstdio>
#include <fstream>
#include <limits>

#include "base/units.h"

namespace lamina {

int64_t AvailableHostBytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string line;
  while (std::getline(meminfo, line)) {
    long long kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %lld kB", &kib) == 1) return kib * 1024;
  }
  return std::numeric_limits<int64_t>::max();
}

Status CheckHostMemory(int64_t bytes, const std::string& what) {
  const int64_t available = AvailableHostBytes();
  if (bytes <= available) return OkStatus();
  return OutOfSpace(what + " need " + FormatGigabytes(bytes) +
                    " of this host's memory, which has " + FormatGigabytes(available) +
                    " available");
}

int64_t SaturatedProduct(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

}  // namespace lamina
