// What holds for the slices of every model.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "splitter/slices.h"

namespace lamina {

// A slice may read tokens, positions, its context, the attention's output and its own results; what
// it hands on must be among those.
inline void ExpectContractHolds(const SlicedModel& model) {
  for (const Slice& slice : model.slices) {
    std::set<ValueId> known(slice.context_in.begin(), slice.context_in.end());
    if (slice.attention_out >= 0) known.insert(slice.attention_out);
    for (const Op& op : model.graph.ops) {
      if (op.kind == OpKind::kTokens || op.kind == OpKind::kPositions) known.insert(op.output);
    }
    for (const Op& op : slice.program) {
      for (const ValueId input : op.inputs) {
        EXPECT_TRUE(known.contains(input)) << "slice " << slice.index << ": " << op.name
                                           << " reads " << model.graph.values[input].name;
      }
      known.insert(op.output);
    }
    std::vector<ValueId> handed_on = slice.context_out;
    if (slice.attention >= 0) handed_on.insert(handed_on.end(), {slice.q, slice.k, slice.v});
    if (slice.attention < 0) handed_on.push_back(model.graph.logits);
    for (const ValueId value : handed_on)
      EXPECT_TRUE(known.contains(value))
          << "slice " << slice.index << " lacks " << model.graph.values[value].name;
    if (slice.attention >= 0) {
      EXPECT_EQ(slice.context_out, model.slices[slice.index + 1].context_in);
    }
  }
}

inline void ExpectSlicesAndAttentionsAreTheGraph(const SlicedModel& model) {
  std::multiset<std::string> expected, found;
  for (const Op& op : model.graph.ops) {
    if (op.kind != OpKind::kTokens && op.kind != OpKind::kPositions) expected.insert(op.name);
  }
  for (const Op& op : model.attentions) found.insert(op.name);
  for (const Slice& slice : model.slices) {
    for (const Op& op : slice.program) found.insert(op.name);
  }
  EXPECT_EQ(found, expected);
}

inline bool Needs(const Graph& graph, ValueId value, const Op& op) {
  if (value == op.output) return true;
  const std::vector<ValueId>& inputs = graph.ops[graph.values[value].producer].inputs;
  return std::any_of(inputs.begin(), inputs.end(),
                     [&](ValueId input) { return Needs(graph, input, op); });
}

// Nothing that q does not need stands before q; then nothing that k does not need before k; then
// the same for v.
inline void ExpectQThenKThenVComeFirst(const SlicedModel& model) {
  for (const Slice& slice : model.slices) {
    std::vector<ValueId> targets;
    for (const ValueId target : {slice.q, slice.k, slice.v}) {
      const bool computed_here = std::any_of(slice.program.begin(), slice.program.end(),
                                             [&](const Op& op) { return op.output == target; });
      if (!computed_here) continue;
      targets.push_back(target);
      for (const Op& op : slice.program) {
        const bool needed = std::any_of(targets.begin(), targets.end(),
                                        [&](ValueId t) { return Needs(model.graph, t, op); });
        EXPECT_TRUE(needed) << "slice " << slice.index << ": " << op.name << " stands before "
                            << model.graph.values[target].name;
        if (op.output == target) break;
      }
    }
  }
}

inline void ExpectSound(const SlicedModel& model) {
  ExpectContractHolds(model);
  ExpectSlicesAndAttentionsAreTheGraph(model);
  ExpectQThenKThenVComeFirst(model);
}

}  // namespace lamina
