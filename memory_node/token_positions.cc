#include "memory_node/token_positions.h"

#include <algorithm>

namespace lamina {

void TokenPositions::Append(SequenceId sequence, int64_t index, int64_t position) {
  std::vector<Range>& ranges = ranges_[sequence];
  if (index == 0) ranges.clear();
  // Tokens that continue the last range need no entry, so a sequence that lives on one node has a
  // single range however long it is.
  if (ranges.empty() || position - ranges.back().position != index - ranges.back().index)
    ranges.push_back({index, position});
}

int64_t TokenPositions::NumBefore(SequenceId sequence, int64_t position, int64_t num_tokens) const {
  const auto found = ranges_.find(sequence);
  if (found == ranges_.end()) return 0;
  const std::vector<Range>& ranges = found->second;
  // The first range that begins at `position` or after it. Of the range before that, those tokens
  // count that come before `position`; of all earlier ranges, all tokens.
  const auto behind = std::ranges::lower_bound(ranges, position, {}, &Range::position);
  if (behind == ranges.begin()) return 0;
  const Range& last = *(behind - 1);
  const int64_t end = behind == ranges.end() ? num_tokens : std::min(behind->index, num_tokens);
  return std::clamp<int64_t>(last.index + std::min(position - last.position, end - last.index), 0,
                             num_tokens);
}

}  // namespace lamina
