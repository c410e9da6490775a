// Prompts of benchmarks that need no text.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace lamina {

// Pseudo-random tokens, the same in every run. Prompts of another number differ from it.
std::vector<TokenId> SyntheticPrompt(int64_t length, uint64_t number, int64_t vocab_size);

}  // namespace lamina
