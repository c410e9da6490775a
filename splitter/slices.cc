#include "splitter/slices.h"

#include <string>
#include <utility>

#include "model/families/registry.h"
#include "model/tracer.h"
#include "splitter/min_cut.h"

namespace lamina {
namespace {

// Checks ids, and that operators stand in topological order, which everything here relies on.
Status CheckOp(const Graph& graph, size_t index) {
  const Op& op = graph.ops[index];
  const auto in_range = [&](ValueId id) {
    return id >= 0 && static_cast<size_t>(id) < graph.values.size();
  };
  if (!in_range(op.output) || graph.values[op.output].producer != static_cast<int32_t>(index)) {
    return InvalidArgument("operator " + op.name + " is not the producer of its output");
  }
  if (op.kind == OpKind::kAttention && op.inputs.size() != 3)
    return InvalidArgument("attention " + op.name + " needs q, k and v");
  for (const ValueId input : op.inputs) {
    if (!in_range(input) || graph.values[input].producer < 0 ||
        graph.values[input].producer >= static_cast<int32_t>(index)) {
      return InvalidArgument("operator " + op.name +
                             " reads a value that is not produced before it");
    }
  }
  return OkStatus();
}

// [ops] Whether `value` depends on the operator's output, its producer among them.
std::vector<bool> AncestorsOf(const Graph& graph, ValueId value) {
  std::vector<bool> needed(graph.ops.size(), false);
  needed[graph.values[value].producer] = true;
  for (size_t i = graph.ops.size(); i-- > 0;) {
    if (!needed[i]) continue;
    for (const ValueId input : graph.ops[i].inputs) needed[graph.values[input].producer] = true;
  }
  return needed;
}

Status CheckGraph(const Graph& graph) {
  for (size_t i = 0; i < graph.ops.size(); ++i) LAMINA_RETURN_IF_ERROR(CheckOp(graph, i));
  for (const Value& value : graph.values) {
    if (value.producer < 0 || static_cast<size_t>(value.producer) >= graph.ops.size()) {
      return InvalidArgument("value " + value.name + " has no producer");
    }
  }
  if (graph.logits < 0 || static_cast<size_t>(graph.logits) >= graph.values.size())
    return InvalidArgument("the graph has no logits");
  // An attention that the logits do not need would have no slice that reads its output.
  const std::vector<bool> needed = AncestorsOf(graph, graph.logits);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    if (op.kind == OpKind::kAttention && !needed[i])
      return InvalidArgument("the logits do not depend on attention " + op.name);
  }
  return OkStatus();
}

// Tokens and positions come with the order, and attentions run on memory nodes.
bool RunsInSlices(const Op& op) {
  return op.kind != OpKind::kTokens && op.kind != OpKind::kPositions &&
         op.kind != OpKind::kAttention;
}

// The operators of `members` in the graph's order, except that what q needs comes first, then what
// k needs, then what v needs.
std::vector<Op> OrderProgram(const Graph& graph, const Slice& slice, std::vector<bool> members) {
  std::vector<Op> program;
  const auto take = [&](auto&& wanted) {
    for (size_t i = 0; i < members.size(); ++i) {
      if (!members[i] || !wanted(i)) continue;
      program.push_back(graph.ops[i]);
      members[i] = false;
    }
  };
  for (const ValueId target : {slice.q, slice.k, slice.v}) {
    // The last slice has no attention behind it.
    if (target < 0) continue;
    const std::vector<bool> needed = AncestorsOf(graph, target);
    take([&](size_t i) { return needed[i]; });
  }
  take([](size_t) { return true; });
  return program;
}

// [ops] Whether the operator runs in slices and is in `now` but not in `earlier`.
std::vector<bool> Members(const Graph& graph, const std::vector<bool>& earlier,
                          const std::vector<bool>& now) {
  std::vector<bool> members(graph.ops.size());
  for (size_t i = 0; i < members.size(); ++i)
    members[i] = now[i] && !earlier[i] && RunsInSlices(graph.ops[i]);
  return members;
}

Result<Graph> PlainGraph(const ModelConfig& config) {
  if (config.imported != nullptr) return *config.imported;
  const Architecture* architecture = FindArchitecture(config.architecture);
  if (architecture == nullptr) {
    return Unimplemented("architecture " + config.architecture +
                         " has no forward code; there is: " + ArchitectureNames());
  }
  Tracer tracer;
  const Tensor logits = architecture->forward(config, tracer.tokens(), tracer.positions());
  return tracer.Finish(logits);
}

void MarkQuantized(const ModelConfig& config, Graph& graph) {
  if (config.layer_bits == 0 && config.head_bits == 0) return;
  const Op* const head = &HeadOf(graph);
  const bool only_stacked =
      config.quantization && config.quantization->layout == QuantizationConfig::Layout::kMxfp4;
  for (Op& op : graph.ops) {
    if (op.kind != OpKind::kLinear && op.kind != OpKind::kExperts) continue;
    for (WeightRef& weight : op.weights) {
      if (weight.shape.size() == 2 && (!only_stacked || weight.stack.size > 0))
        weight.quantized_bits = &op == head ? config.head_bits : config.layer_bits;
    }
  }
}

}  // namespace

int64_t SlicedModel::attention_bytes_per_token(int attention) const {
  const Op& op = attentions[attention];
  int64_t bytes = graph.values[op.output].bytes_per_token;
  for (const ValueId input : op.inputs) bytes += graph.values[input].bytes_per_token;
  return bytes;
}

Result<Graph> TraceModel(const ModelConfig& config) {
  LAMINA_ASSIGN_OR_RETURN(Graph graph, PlainGraph(config));
  MarkQuantized(config, graph);
  return graph;
}

Result<SlicedModel> SplitGraph(Graph graph) {
  LAMINA_RETURN_IF_ERROR(CheckGraph(graph));
  SlicedModel model;
  model.graph = std::move(graph);
  const std::vector<Op>& ops = model.graph.ops;

  Slice slice;
  // What earlier slices and attentions have run.
  std::vector<bool> done(ops.size(), false);
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind != OpKind::kAttention) continue;
    LAMINA_ASSIGN_OR_RETURN(Cut cut, CutAtAttention(model.graph, static_cast<int32_t>(i), done));
    slice.attention = static_cast<int>(model.attentions.size());
    slice.q = ops[i].inputs[0];
    slice.k = ops[i].inputs[1];
    slice.v = ops[i].inputs[2];
    slice.context_out = cut.values;
    slice.context_bytes_per_token = cut.bytes_per_token;
    slice.program = OrderProgram(model.graph, slice, Members(model.graph, done, cut.before));
    model.slices.push_back(std::move(slice));
    model.attentions.push_back(ops[i]);

    slice = Slice();
    slice.index = static_cast<int>(model.slices.size());
    slice.context_in = std::move(cut.values);
    slice.attention_out = ops[i].output;
    done = std::move(cut.before);
    done[i] = true;
  }
  slice.program = OrderProgram(model.graph, slice,
                               Members(model.graph, done, std::vector<bool>(ops.size(), true)));
  model.slices.push_back(std::move(slice));
  return model;
}

}  // namespace lamina
