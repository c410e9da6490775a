// Cuts a graph at its attention operators into slices: the programs that compute nodes run between
// attentions. n attentions give n + 1 slices.
//
// At each attention the minimum weighted cut of the graph without that operator, from its inputs to
// its output, gives the context: the values that must be carried past the attention besides its own
// output (Lamina, section 5.2). The algorithm is in min_cut.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/graph.h"
#include "model/model_config.h"

namespace lamina {

// Slice k runs after attention k-1 and before attention k. Its program reads nothing but tokens and
// positions, `context_in`, `attention_out`, and what it computes itself.
struct Slice {
  int index = 0;  // k
  // In the order of execution. What q needs comes first, then what k needs, then what v needs, then
  // the rest, so that q, k and v can leave as early as possible.
  std::vector<Op> program;
  // What slice k-1 hands on: values that it or an earlier slice has computed and this or a later
  // one reads. Empty for slice 0.
  std::vector<ValueId> context_in;
  // The output of attention k-1; -1 for slice 0.
  ValueId attention_out = -1;
  // k, the index into SlicedModel::attentions; -1 for the last slice.
  int attention = -1;
  // What attention k reads; -1 for the last slice.
  ValueId q = -1, k = -1, v = -1;
  // The next slice's context_in. Empty for the last slice.
  std::vector<ValueId> context_out;
  // The weight of the cut behind this slice: the bytes of one row of all of context_out.
  int64_t context_bytes_per_token = 0;
};

// The result of SplitGraph.
struct SlicedModel {
  Graph graph;
  std::vector<Op> attentions;  // in the order of execution
  std::vector<Slice> slices;   // attentions.size() + 1

  // Bytes that the attention moves per token between compute and memory nodes if its elements
  // travel as fp32: q, k and v there, the output back.
  int64_t attention_bytes_per_token(int attention) const;
};

// The model's graph: the one that was imported, or else what the forward code of the config's
// architecture records. Matrices know how they are stored by what the config says of layers and
// head; which ones a quantized checkpoint leaves plain in its layers is not looked up.
// kUnimplemented for an architecture that has neither; kInternal for a mistake in the forward code.
Result<Graph> TraceModel(const ModelConfig& config);

// kInvalidArgument names the operator if the graph is malformed, if the logits do not depend on an
// attention, or if the graph cannot be cut at one.
Result<SlicedModel> SplitGraph(Graph graph);

// What `lamina split` prints: each slice's operators, the values that are cut and their bytes per
// token. As text, slices of the same form are shown once.
std::string DescribeSlices(const SlicedModel& model, const ModelConfig& config);
std::string SlicesToJson(const SlicedModel& model, const ModelConfig& config);

}  // namespace lamina
