// Cuts a graph at its attention operators into slices: the programs that compute nodes run between
// attentions.
//
// For each attention the minimum weighted cut, in the graph without that operator, from its input
// to its output gives the context: the values that must be carried across besides the attention's
// own output (Lamina, section 5.2). n attentions give n + 1 slices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/graph.h"
#include "model/model_config.h"

namespace lamina {

// Slice k runs after attention k-1 and before attention k. Its program reads only: tokens and
// positions, `context_in`, `attention_out`, and what it computes itself.
struct Slice {
  int index = 0;
  // In execution order; q's producers come first: no op that q does not need stands before q.
  std::vector<Op> program;
  std::vector<ValueId> context_in;  // from slice k-1: the min-cut's values; empty for slice 0
  ValueId attention_out = -1;       // output of attention k-1; -1 for slice 0
  // Index into SlicedModel::attentions of the one that follows; -1 for the last slice.
  int attention = -1;
  ValueId q = -1, k = -1, v = -1;       // what attention k reads; -1 for the last slice
  std::vector<ValueId> context_out;     // for slice k+1; empty for the last slice
  int64_t context_bytes_per_token = 0;  // weight of the cut behind this slice: sum of context_out
};

struct SlicedModel {
  Graph graph;
  std::vector<Op> attentions;  // in order of execution
  std::vector<Slice> slices;   // attentions.size() + 1

  // Wire bytes per token and layer between compute and memory nodes at 4 bytes per element: q + k +
  // v there, output back.
  int64_t attention_bytes_per_token(int attention) const;
};

// Runs the forward code of the config's architecture symbolically, or takes the graph that was
// imported. kUnimplemented for an architecture that has neither.
Result<Graph> TraceModel(const ModelConfig& config);

// kInvalidArgument if an attention is unreachable or the graph cannot be cut there, naming the
// operator.
Result<SlicedModel> SplitGraph(Graph graph);

// Both, for users: `lamina split`. The text shows each slice's operators, the values cut and their
// bytes per token.
std::string DescribeSlices(const SlicedModel& model, const ModelConfig& config);
std::string SlicesToJson(const SlicedModel& model, const ModelConfig& config);

}  // namespace lamina
