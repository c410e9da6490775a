// The minimum weighted cut of a computation graph at one attention operator (Lamina, section 5.2).
//
// The cut divides the operators into those that run before the attention and those that run after
// it. Its weight is what must be carried past the attention: the bytes per token of every value
// that is produced before and read after, each counted once however many operators read it. The
// attention's own q, k, v and output do not count, nor do tokens and positions, which every slice
// is given anyway.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "model/graph.h"

namespace lamina {

// The result: sets of operators and values of the graph that was cut.
struct Cut {
  // [ops] Whether the operator runs before the attention. With an operator its producers are in the
  // set.
  std::vector<bool> before;
  // The context: the values to carry past the attention, ascending.
  std::vector<ValueId> values;
  // The weight of the cut: the sum over `values`.
  int64_t bytes_per_token = 0;
};

// Cuts at graph.ops[attention]. `already` [ops] says what runs before in any case, with its
// producers: earlier slices and earlier attentions. This attention and all later ones run after the
// cut, with everything that depends on them.
//
// Of several minimum cuts the result is the one closest to the attention's output, which is unique:
// whatever does not depend on the attention runs before it if that does not make the context
// larger, so that a compute node can work on it while the memory nodes attend. That delays neither
// q nor k and v, because they come first in a slice's program.
//
// REQUIRES: ops in topological order, ids in range. kInvalidArgument if something that depends on
// the attention has to run before it; kInternal if the flow and the values that are cut disagree.
Result<Cut> CutAtAttention(const Graph& graph, int32_t attention, const std::vector<bool>& already);

}  // namespace lamina
