// How long an engine takes to prefill prompts when nothing else runs: what a recovery, which has to
// do the same beside other streams, is held against.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "manager/engine.h"

namespace lamina {

// In seconds, from when prompts of these lengths were submitted, all at once, until the last of
// them had a token. nullopt: one was refused or failed, or this took two minutes. `first_seed`: of
// their samplings and their text, the next ones count up; K and V of a prompt of the same seed may
// be shared. REQUIRES: the engine is idle; lengths are not empty.
std::optional<double> TimePrefill(Engine& engine, const std::vector<int64_t>& lengths,
                                  uint64_t first_seed, int64_t vocab_size);

}  // namespace lamina
