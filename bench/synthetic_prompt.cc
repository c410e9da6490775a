#include "bench/synthetic_prompt.h"

namespace lamina {

// Knuth's MMIX generator.
std::vector<TokenId> SyntheticPrompt(int64_t length, uint64_t number, int64_t vocab_size) {
  std::vector<TokenId> prompt;
  uint64_t state = number * 0x9e3779b97f4a7c15u + 1;
  for (int64_t i = 0; i < length; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    prompt.push_back(static_cast<TokenId>((state >> 33) % static_cast<uint64_t>(vocab_size)));
  }
  return prompt;
}

}  // namespace lamina
