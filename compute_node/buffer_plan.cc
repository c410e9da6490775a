#include "compute_node/buffer_plan.h"

#include <algorithm>
#include <map>

namespace lamina {

std::optional<HeadOps> HeadOpsOf(const SlicedModel& model) {
  const std::vector<Op>& program = model.slices.back().program;
  ValueId made = model.graph.logits;
  for (size_t i = program.size(); i > 0; --i) {
    const Op& op = program[i - 1];
    if (op.output != made || op.inputs.size() != 1) return std::nullopt;
    made = op.inputs[0];
    if (op.kind == OpKind::kLinear) return HeadOps{i - 1, made};
    if (op.kind != OpKind::kScale && op.kind != OpKind::kSoftCap) return std::nullopt;
  }
  return std::nullopt;
}

// A linear scan over the chain of slices and attentions (as in register allocation: Poletto and
// Sarkar, Linear Scan Register Allocation, 1999). A buffer is free again after the last operator
// that reads its value.
BufferPlan PlanBuffers(const SlicedModel& model) {
  std::vector<const Op*> chain;
  for (const Slice& slice : model.slices) {
    for (const Op& op : slice.program) chain.push_back(&op);
    if (slice.attention >= 0)
      chain.push_back(&model.attentions[static_cast<size_t>(slice.attention)]);
  }
  const size_t num_values = model.graph.values.size();
  const auto width = [&](ValueId id) { return model.graph.values[static_cast<size_t>(id)].width; };
  std::vector<size_t> last_use(num_values, 0);
  for (size_t i = 0; i < chain.size(); ++i) {
    for (const ValueId input : chain[i]->inputs) last_use[static_cast<size_t>(input)] = i;
  }
  // Sampling reads the logits after the last operator.
  last_use[static_cast<size_t>(model.graph.logits)] = chain.size();
  const std::optional<HeadOps> head = HeadOpsOf(model);
  size_t head_begin = chain.size();  // in the chain
  if (head) {
    last_use[static_cast<size_t>(head->input)] = chain.size();
    head_begin -= model.slices.back().program.size() - head->first;
  }

  BufferPlan plan;
  plan.buffer_of.assign(num_values, -1);
  std::multimap<int64_t, int> free_buffers;  // width -> buffer
  for (size_t i = 0; i < chain.size(); ++i) {
    const Op& op = *chain[i];
    if (op.kind == OpKind::kTokens || op.kind == OpKind::kPositions) continue;
    const int64_t op_width = width(op.output);
    if (const auto reusable = free_buffers.find(op_width); reusable != free_buffers.end()) {
      plan.buffer_of[static_cast<size_t>(op.output)] = reusable->second;
      free_buffers.erase(reusable);
    } else {
      plan.buffer_of[static_cast<size_t>(op.output)] = static_cast<int>(plan.widths.size());
      plan.widths.push_back(op_width);
      plan.only_head.push_back(true);
    }
    if (i < head_begin) plan.only_head[plan.BufferOf(op.output)] = false;
    // The output was placed first, so no operator writes into a buffer that it reads. An operator
    // may read a value twice, and its buffer must be freed once.
    std::vector<ValueId> inputs = op.inputs;
    std::sort(inputs.begin(), inputs.end());
    inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
    for (const ValueId input : inputs) {
      const int buffer = plan.buffer_of[static_cast<size_t>(input)];
      if (buffer >= 0 && last_use[static_cast<size_t>(input)] == i)
        free_buffers.emplace(width(input), buffer);
    }
  }
  return plan;
}

}  // namespace lamina
