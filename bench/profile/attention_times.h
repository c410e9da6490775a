// Measures what attention takes on this machine's cores, for `lamina bench profile`.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "base/worker_team.h"
#include "cost/cost_model.h"

namespace lamina {

// One measured load.
struct AttentionTime {
  AttentionLoad load;
  double seconds = 0;  // median
};

// First decode over many sequences, whose K and V fill `kv_bytes`, more than any cache holds; then
// chunks of one prompt, the largest last. kOutOfSpace if there is not enough memory.
Result<std::vector<AttentionTime>> MeasureAttention(const AttentionHeads& heads, WorkerTeam& team,
                                                    int64_t kv_bytes = int64_t{256} << 20);

}  // namespace lamina
