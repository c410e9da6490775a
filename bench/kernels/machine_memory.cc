#include "bench/kernels/machine_memory.h"

#include <fmt/format.h>
#include <unistd.h>

namespace lamina {

Status CheckFits(double bytes, const std::string& what) {
  const double machine =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (bytes <= machine / 2) return OkStatus();
  return OutOfSpace(
      fmt::format("{} take {:.1f} GB, more than half of this machine's {:.1f} GB of memory", what,
                  bytes / 1e9, machine / 1e9));
}

}  // namespace lamina
