#include "cli/machine_memory.h"

#include <fmt/format.h>

#include "base/units.h"

namespace lamina {

Result<int64_t> KvBytesOfEachNode(const MachineShare& share) {
  constexpr int64_t kMiB = int64_t{1} << 20, kLeast = 16 * kMiB;
  const auto usable =
      static_cast<int64_t>(static_cast<double>(share.available_bytes) * share.utilization);
  const int64_t bytes = (usable - share.weight_bytes) / share.num_kv_nodes / kMiB * kMiB;
  if (bytes >= kLeast) return bytes;
  return OutOfSpace(fmt::format(
      "--memory-utilization {}: {} of this machine's memory are free, and weights of {} leave too "
      "little of that part for a KV cache; free some, or name --memory",
      share.utilization, FormatGigabytes(share.available_bytes),
      FormatGigabytes(share.weight_bytes)));
}

}  // namespace lamina
