// What attention takes on this machine's cores.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "base/worker_team.h"
#include "cost/cost_model.h"

namespace lamina {

struct AttentionTime {
  AttentionLoad load;
  double seconds = 0;  // the median
};

// Decode over many sequences, whose K and V fill so many bytes that no cache holds them, and chunks
// of one prompt. kOutOfSpace if their memory cannot be had.
Result<std::vector<AttentionTime>> MeasureAttention(const AttentionHeads& heads, WorkerTeam& team,
                                                    int64_t kv_bytes = int64_t{256} << 20);

}  // namespace lamina
