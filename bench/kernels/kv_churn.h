// A memory node's token slots under load: sequences come, grow by a token a step, and leave, so
// that the allocator's lists age as they do in service.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace lamina {

// The load.
struct KvChurn {
  int64_t capacity_tokens = 0;
  // Tokens of a sequence when it leaves, on average. A prompt has half of that to all of it; one to
  // half as many tokens are generated.
  int64_t mean_tokens = 0;
  // Sequences are admitted while the share of used slots, with their prompt, stays below this.
  double occupancy = 0.9;
  int64_t departures = 10000;
  uint32_t seed = 1;
};

// The slot tables of the sequences that run when `departures` sequences have left, and more than as
// many have come. kInvalidArgument if a prompt could be too long ever to be admitted.
Result<std::vector<std::vector<TokenSlot>>> RunChurn(const KvChurn& churn);

// Tables of the same lengths on a fresh slab, one after the other.
std::vector<std::vector<TokenSlot>> FreshTables(const std::vector<std::vector<TokenSlot>>& tables);

// Mean number of tokens in a run of consecutive slots. REQUIRES: a table is not empty.
double MeanRunTokens(const std::vector<std::vector<TokenSlot>>& tables);

}  // namespace lamina
