#include "splitter/tensor_parallel.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace lamina {
namespace {

// Whether each element, or each head, of the output needs only the inputs' elements, or heads, in
// the same place.
bool WorksInPlace(OpKind kind) {
  switch (kind) {
    case OpKind::kHeadNorm:
    case OpKind::kHeadLayerNorm:
    case OpKind::kRope:
    case OpKind::kSiluMul:
    case OpKind::kGeluMul:
    case OpKind::kSilu:
    case OpKind::kGelu:
    case OpKind::kGeluTanh:
    case OpKind::kRelu:
    case OpKind::kScale:
    case OpKind::kSoftCap:
    case OpKind::kGrowByPosition:
    case OpKind::kAdd:
    case OpKind::kMul:
    case OpKind::kAttention: return true;
    default: return false;
  }
}

bool WorksByHead(OpKind kind) {
  return kind == OpKind::kRope || kind == OpKind::kHeadNorm || kind == OpKind::kHeadLayerNorm;
}

// Whether the operator's weights have a row, or an element, for each element or each head of its
// output.
bool HasWeightsOfOutputs(OpKind kind) {
  return kind == OpKind::kLinear || kind == OpKind::kHeadLayerNorm || kind == OpKind::kAttention;
}

// Tokens and positions are replicated, and sharded operators may read them.
bool IsKnownEverywhere(const Graph& graph, ValueId value) {
  const OpKind kind =
      graph.ops[static_cast<size_t>(graph.values[static_cast<size_t>(value)].producer)].kind;
  return kind == OpKind::kTokens || kind == OpKind::kPositions;
}

// [values] The largest set of sharded values, without those of `never`, in which every operator
// that works in place has either all of its inputs and its output or none of them. Starts with all
// values and removes some until nothing changes.
std::vector<bool> LargestSharding(const Graph& graph, const std::vector<bool>& never) {
  std::vector<bool> sharded(never.size());
  for (size_t value = 0; value < sharded.size(); ++value) sharded[value] = !never[value];
  // Rank 0 samples from whole logits.
  sharded[static_cast<size_t>(graph.logits)] = false;
  for (bool changed = true; changed;) {
    changed = false;
    for (const Op& op : graph.ops) {
      // A linear can read and make either kind.
      if (op.kind == OpKind::kLinear) continue;
      std::vector<ValueId> together = {op.output};
      for (const ValueId input : op.inputs) {
        if (!IsKnownEverywhere(graph, input)) together.push_back(input);
      }
      const auto is_sharded = [&](ValueId value) {
        return static_cast<bool>(sharded[static_cast<size_t>(value)]);
      };
      if (WorksInPlace(op.kind) && std::ranges::all_of(together, is_sharded)) continue;
      for (const ValueId value : together) {
        changed |= is_sharded(value);
        sharded[static_cast<size_t>(value)] = false;
      }
    }
  }
  return sharded;
}

// [values] Which values are sharded. A linear that reads a sharded value makes a sum over all
// ranks, which is whole; so where one would also make a sharded value, that value is ruled out and
// the largest set is looked for again. The first such linear in the graph's order gives way, whose
// sum then is reduced.
std::vector<bool> ShardedValues(const Graph& graph) {
  std::vector<bool> never(graph.values.size(), false);
  while (true) {
    std::vector<bool> sharded = LargestSharding(graph, never);
    const auto reduces = std::ranges::find_if(graph.ops, [&](const Op& op) {
      return op.kind == OpKind::kLinear && sharded[static_cast<size_t>(op.inputs[0])] &&
             sharded[static_cast<size_t>(op.output)];
    });
    if (reduces == graph.ops.end()) return sharded;
    never[static_cast<size_t>(reduces->output)] = true;
  }
}

Status CheckDivides(int num_ranks, int64_t count, const char* what, const Op& op) {
  if (count % num_ranks == 0) return OkStatus();
  return InvalidArgument("tensor_parallel_size " + std::to_string(num_ranks) +
                         " does not divide the " + std::to_string(count) + " " + what + " of " +
                         op.name);
}

Status CheckDivides(const Graph& graph, const std::vector<bool>& sharded, int num_ranks) {
  const auto is_sharded = [&](const Op& op) {
    return static_cast<bool>(sharded[static_cast<size_t>(op.output)]);
  };
  for (const Op& op : graph.ops) {
    if (op.kind != OpKind::kAttention) continue;
    if (!is_sharded(op))
      return Unimplemented("tensor parallelism: " + op.name +
                           " cannot be shared by head, as its inputs cannot");
    // A rank has whole KV heads, and the query heads that share them.
    LAMINA_RETURN_IF_ERROR(CheckDivides(num_ranks, op.num_kv_heads, "kv_heads", op));
    LAMINA_RETURN_IF_ERROR(CheckDivides(num_ranks, op.num_heads, "heads", op));
  }
  for (const Op& op : graph.ops) {
    if (!is_sharded(op)) continue;
    if (WorksByHead(op.kind))
      LAMINA_RETURN_IF_ERROR(CheckDivides(num_ranks, op.num_heads, "heads", op));
    LAMINA_RETURN_IF_ERROR(CheckDivides(
        num_ranks, graph.values[static_cast<size_t>(op.output)].width, "elements", op));
    if (op.kind != OpKind::kLinear || op.weights[0].blocks.size == 0) continue;
    LAMINA_RETURN_IF_ERROR(
        CheckDivides(num_ranks, op.weights[0].shape[0] / op.weights[0].blocks.size, "blocks", op));
  }
  return OkStatus();
}

// Reduces dimension `dim` to the rank's range. REQUIRES: the range consists of whole blocks, as
// CheckDivides has seen to.
void Shard(WeightRef& weight, size_t dim, int num_ranks, int rank) {
  if (weight.whole.empty()) {
    weight.whole = weight.shape;
    weight.first.assign(weight.shape.size(), 0);
  }
  weight.shape[dim] /= num_ranks;
  const int64_t skipped = weight.shape[dim] * rank;
  const bool by_block = dim == 0 && weight.blocks.size > 0;
  weight.first[dim] += by_block ? skipped / weight.blocks.size * weight.blocks.step : skipped;
}

// Builds a rank's graph operator by operator, in the order of the whole graph.
class RankGraph {
 public:
  RankGraph(const Graph& whole, int num_ranks, int rank)
      : whole_(whole),
        num_ranks_(num_ranks),
        rank_(rank),
        sharded_(ShardedValues(whole)),
        now_(whole.values.size(), -1) {}

  Result<Graph> Build() {
    LAMINA_RETURN_IF_ERROR(CheckDivides(whole_, sharded_, num_ranks_));
    for (const Op& op : whole_.ops) Add(op);
    graph_.logits = now_[static_cast<size_t>(whole_.logits)];
    return std::move(graph_);
  }

 private:
  bool sharded(ValueId value) const { return sharded_[static_cast<size_t>(value)]; }

  void Add(Op op) {
    const ValueId output = op.output;
    // A row-parallel linear: its weight has the columns of this rank's inputs.
    const bool reduces = op.kind == OpKind::kLinear && sharded(op.inputs[0]);
    if (HasWeightsOfOutputs(op.kind) && sharded(output)) {
      for (WeightRef& weight : op.weights) Shard(weight, 0, num_ranks_, rank_);
    }
    if (reduces) {
      Shard(op.weights[0], 1, num_ranks_, rank_);
      if (rank_ != 0) op.weights.resize(1);  // the sum has the bias once
    }
    if (sharded(output)) {
      op.num_heads /= num_ranks_;
      op.num_kv_heads /= num_ranks_;
    }
    for (ValueId& input : op.inputs) input = now_[static_cast<size_t>(input)];
    const Value& value = whole_.values[static_cast<size_t>(output)];
    const ValueId made = Append(std::move(op), value, sharded(output) ? num_ranks_ : 1);
    now_[static_cast<size_t>(output)] = reduces ? AppendAllReduce(made) : made;
  }

  ValueId Append(Op op, Value value, int num_parts) {
    value.width /= num_parts;
    value.bytes_per_token /= num_parts;
    value.producer = static_cast<int32_t>(graph_.ops.size());
    op.output = static_cast<ValueId>(graph_.values.size());
    graph_.ops.push_back(std::move(op));
    graph_.values.push_back(std::move(value));
    return graph_.ops.back().output;
  }

  ValueId AppendAllReduce(ValueId partial) {
    Value value = graph_.values[static_cast<size_t>(partial)];
    value.name += ".all_reduce";
    Op op;
    op.kind = OpKind::kAllReduce;
    op.name = value.name;
    op.inputs = {partial};
    op.num_ranks = num_ranks_;
    return Append(std::move(op), std::move(value), 1);
  }

  const Graph& whole_;
  const int num_ranks_, rank_;
  const std::vector<bool> sharded_;
  // [values of whole_] The value of graph_ that stands for it.
  std::vector<ValueId> now_;
  Graph graph_;
};

}  // namespace

Result<Graph> GraphOfRank(const Graph& whole, int num_ranks, int rank) {
  if (num_ranks == 1) return whole;
  return RankGraph(whole, num_ranks, rank).Build();
}

}  // namespace lamina
