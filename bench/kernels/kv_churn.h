// A node's token slots under load: sequences come, grow by a token a step and leave, so that the
// allocator's lists age as they do in service.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace lamina {

struct KvChurn {
  int64_t capacity_tokens = 0;
  // Of a sequence when it leaves: prompts are half of that to its whole, up to as many are
  // generated.
  int64_t mean_tokens = 0;
  // Sequences are admitted while their prompt fits below this share of the capacity.
  double occupancy = 0.9;
  int64_t departures = 10000;
  uint32_t seed = 1;
};

// The slot tables of the sequences that run after `departures` sequences have left (and more than
// as many have come). kInvalidArgument if a prompt could be too long to be admitted ever.
Result<std::vector<std::vector<TokenSlot>>> RunChurn(const KvChurn& churn);

// Tables of the same lengths on a fresh slab, one after the other.
std::vector<std::vector<TokenSlot>> FreshTables(const std::vector<std::vector<TokenSlot>>& tables);

// Tokens per run of consecutive slots. REQUIRES: a table is not empty.
double MeanRunTokens(const std::vector<std::vector<TokenSlot>>& tables);

}  // namespace lamina
