// Where in their sequences the tokens on this node stand. A sequence that is spread over memory
// nodes leaves ranges of its tokens on each, and attention with a window has to know which of them
// are inside it.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/ids.h"

namespace lamina {

// Thread: one owner.
class TokenPositions {
 public:
  // The token that is number `index` of those here, and what follows it until the next call, stands
  // at `position` and behind. Index 0 starts the sequence anew.
  void Append(SequenceId sequence, int64_t index, int64_t position);

  // How many of the first `num_tokens` tokens here stand before `position`. 0 for sequences that
  // are not known.
  int64_t NumBefore(SequenceId sequence, int64_t position, int64_t num_tokens) const;

  void Release(SequenceId sequence) { ranges_.erase(sequence); }

 private:
  struct Range {
    int64_t index = 0;     // of its first token here
    int64_t position = 0;  // of its first token in the sequence
  };
  std::unordered_map<SequenceId, std::vector<Range>> ranges_;  // ascending
};

}  // namespace lamina
