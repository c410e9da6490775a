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

struct Cut {
  std::vector<bool> before;     // [ops] closed: an operator's producers run before it
  std::vector<ValueId> values;  // the context, ascending
  int64_t bytes_per_token = 0;  // its weight
};

enum class MaxFlowAlgorithm { kBoykovKolmogorov, kPushRelabel };

// Cuts at graph.ops[attention]. `already` [ops]: what runs before in any case, namely earlier
// slices and earlier attentions; closed. That attention and all later ones run after the cut, with
// everything that depends on them.
//
// Of several minimum cuts this is the one closest to the attention's output, which is unique:
// whatever does not depend on the attention runs before it if that does not make the context
// larger, so that a compute node can work on it while the memory nodes attend. It delays neither q
// nor k and v, because they stand first in a slice's order.
//
// REQUIRES: ops in topological order, ids in range. kInvalidArgument if `already` holds something
// that depends on the attention.
Result<Cut> CutAtAttention(const Graph& graph, int32_t attention, const std::vector<bool>& already,
                           MaxFlowAlgorithm algorithm = MaxFlowAlgorithm::kBoykovKolmogorov);

}  // namespace lamina
