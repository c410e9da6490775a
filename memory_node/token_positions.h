// The positions, in their sequences, of the tokens that this node holds. A sequence that is spread
// over memory nodes leaves ranges of its tokens on each of them, and attention with a window has to
// know which of these tokens are inside the window.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/ids.h"

namespace lamina {

// Thread: one owner.
class TokenPositions {
 public:
  // Says that the token with number `index` among those here is at `position` of the sequence, and
  // that the tokens appended after it, until the next call, are at the positions that follow. Index
  // 0 starts the sequence anew.
  void Append(SequenceId sequence, int64_t index, int64_t position);

  // How many of the first `num_tokens` tokens here are at positions before `position`; 0 if the
  // sequence is unknown.
  int64_t NumBefore(SequenceId sequence, int64_t position, int64_t num_tokens) const;

  void Release(SequenceId sequence) { ranges_.erase(sequence); }

 private:
  // Tokens at consecutive positions. The range ends where the next one begins.
  struct Range {
    int64_t index = 0;     // number of the first token, among those here
    int64_t position = 0;  // of the first token, in the sequence
  };
  std::unordered_map<SequenceId, std::vector<Range>> ranges_;  // ascending
};

}  // namespace lamina
