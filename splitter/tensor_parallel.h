// Tensor parallelism: makes, from the graph of a whole model, that of one of several ranks, which
// run the model together (Shoeybi et al., "Megatron-LM", 2019, section 3).
//
// What a rank has is found from the operators alone. A value is sharded, every rank having an equal
// range of its elements, if in the end only linears read it, through operators that work element by
// element (silu_mul, relu, add, ...) or head by head (head_norm, rope, attention). A linear that
// makes such a value is column-parallel: a rank holds the rows of its weight, and of its bias, that
// make its range. A linear that reads one is row-parallel: a rank holds the columns for its range,
// its output is a partial sum, and an all-reduce stands directly behind it; rank 0 adds the bias.
// Everything else is replicated: all ranks compute it, from the same bits to the same bits.
#pragma once

#include "base/status.h"
#include "model/graph.h"

namespace lamina {

// The graph that `rank` of `num_ranks` runs; with one rank, `whole` itself. All ranks' graphs have
// the same operators in the same order. kInvalidArgument names an operator that num_ranks does not
// divide evenly, kUnimplemented one whose attention cannot be shared by head. REQUIRES: 0 <= rank <
// num_ranks; ops in topological order.
Result<Graph> GraphOfRank(const Graph& whole, int num_ranks, int rank);

}  // namespace lamina
