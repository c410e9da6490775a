#include "cli/machine_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/host_memory.h"
#include "base/units.h"

namespace lamina {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20, kLeast = 16 * kMiB;

}  // namespace

Result<int64_t> KvBytesOfEachNode(const MachineShare& share) {
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

int64_t UsefulKvBytes(const KvUse& use) {
  const int64_t request = SaturatedProduct(use.bytes_per_token, use.max_model_len);
  const int64_t all = SaturatedProduct(request, use.max_num_seqs);
  const int64_t bytes = std::max(all / use.num_kv_nodes, request / use.kv_head_parallel);
  return std::max(SaturatedProduct(bytes / kMiB + 1, kMiB), kLeast);
}

}  // namespace lamina
