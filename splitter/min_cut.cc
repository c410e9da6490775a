#include "splitter/min_cut.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
// GCC 12 suspects an empty boost::optional in Boost.Graph's edge iterator
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/boykov_kolmogorov_max_flow.hpp>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#include <deque>
#include <string>

namespace lamina {
namespace {

using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
using VertexProperties = boost::property<
    boost::vertex_color_t, boost::default_color_type,
    boost::property<boost::vertex_distance_t, int64_t,
                    boost::property<boost::vertex_predecessor_t, Traits::edge_descriptor>>>;
using EdgeProperties = boost::property<
    boost::edge_capacity_t, int64_t,
    boost::property<boost::edge_residual_capacity_t, int64_t,
                    boost::property<boost::edge_reverse_t, Traits::edge_descriptor>>>;
using FlowGraph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS,
                                        VertexProperties, EdgeProperties>;

// A flow network whose minimum cuts are those of the graph (Ford and Fulkerson). Its vertices are
// the operators, the values, a source (before the attention) and a sink (after it). Its edges:
//
//   operator -> its value    the value's bytes: paid if the value leaves the source's side.
//   value -> each reader     infinite: a value that is read after the cut is itself after it, so
//                            that it is paid once.
//   reader -> producer       infinite: nothing before the cut reads what is produced after it.
class Network {
 public:
  Network(const Graph& graph, int32_t attention, const std::vector<bool>& already);

  // Computes the maximum flow and returns it: infinite() or more if there is no finite cut.
  int64_t Run();
  // A capacity that no sum of values reaches.
  int64_t infinite() const { return infinite_; }

  // [ops] Whether the sink cannot be reached from the operator through edges that have capacity
  // left. That is the largest source side of all minimum cuts. REQUIRES: Run.
  std::vector<bool> LargestSourceSide() const;

 private:
  size_t ValueVertex(ValueId value) const { return num_ops_ + static_cast<size_t>(value); }
  void Connect(size_t from, size_t to, int64_t capacity);

  size_t num_ops_;
  size_t source_;
  size_t sink_;
  int64_t infinite_ = 1;
  FlowGraph flow_;
};

Network::Network(const Graph& graph, int32_t attention, const std::vector<bool>& already)
    : num_ops_(graph.ops.size()),
      source_(num_ops_ + graph.values.size()),
      sink_(source_ + 1),
      flow_(sink_ + 1) {
  for (const Value& value : graph.values) infinite_ += value.bytes_per_token;
  for (size_t i = 0; i < num_ops_; ++i) {
    const Op& op = graph.ops[i];
    Connect(i, ValueVertex(op.output), graph.values[op.output].bytes_per_token);
    for (const ValueId input : op.inputs) {
      const auto producer = static_cast<size_t>(graph.values[input].producer);
      if (static_cast<int32_t>(i) == attention) {
        // q, k and v are computed before the attention, and reading them costs nothing: they are
        // sent to memory nodes anyway.
        Connect(source_, producer, infinite_);
        continue;
      }
      Connect(ValueVertex(input), i, infinite_);
      Connect(i, producer, infinite_);
    }
    const bool known_everywhere = op.kind == OpKind::kTokens || op.kind == OpKind::kPositions;
    if (already[i] || known_everywhere) Connect(source_, i, infinite_);
    // Later attentions too: each is cut in its turn.
    if (op.kind == OpKind::kAttention && static_cast<int32_t>(i) >= attention)
      Connect(i, sink_, infinite_);
  }
}

void Network::Connect(size_t from, size_t to, int64_t capacity) {
  const auto forward = boost::add_edge(from, to, flow_).first;
  const auto backward = boost::add_edge(to, from, flow_).first;
  boost::put(boost::edge_capacity, flow_, forward, capacity);
  boost::put(boost::edge_capacity, flow_, backward, int64_t{0});
  boost::put(boost::edge_reverse, flow_, forward, backward);
  boost::put(boost::edge_reverse, flow_, backward, forward);
}

int64_t Network::Run() { return boost::boykov_kolmogorov_max_flow(flow_, source_, sink_); }

std::vector<bool> Network::LargestSourceSide() const {
  // A search backwards from the sink: a neighbour reaches the sink if the edge from it to a vertex
  // that does has capacity left.
  const auto residual = boost::get(boost::edge_residual_capacity, flow_);
  const auto reverse = boost::get(boost::edge_reverse, flow_);
  std::vector<bool> reaches_sink(boost::num_vertices(flow_), false);
  reaches_sink[sink_] = true;
  std::deque<size_t> frontier = {sink_};
  while (!frontier.empty()) {
    const size_t vertex = frontier.front();
    frontier.pop_front();
    const auto [begin, end] = boost::out_edges(vertex, flow_);
    for (auto edge = begin; edge != end; ++edge) {
      const size_t neighbour = boost::target(*edge, flow_);
      if (reaches_sink[neighbour] || residual[reverse[*edge]] == 0) continue;
      reaches_sink[neighbour] = true;
      frontier.push_back(neighbour);
    }
  }
  std::vector<bool> source_side(num_ops_);
  for (size_t i = 0; i < num_ops_; ++i) source_side[i] = !reaches_sink[i];
  return source_side;
}

// The values that are produced before the cut and read after it by something else than the
// attention.
std::vector<ValueId> CrossingValues(const Graph& graph, int32_t attention,
                                    const std::vector<bool>& before) {
  std::vector<bool> crosses(graph.values.size(), false);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (before[i] || static_cast<int32_t>(i) == attention) continue;
    for (const ValueId input : graph.ops[i].inputs) {
      const Value& value = graph.values[input];
      if (value.bytes_per_token > 0 && before[value.producer]) crosses[input] = true;
    }
  }
  std::vector<ValueId> values;
  for (size_t value = 0; value < crosses.size(); ++value) {
    if (crosses[value]) values.push_back(static_cast<ValueId>(value));
  }
  return values;
}

}  // namespace

Result<Cut> CutAtAttention(const Graph& graph, int32_t attention,
                           const std::vector<bool>& already) {
  Network network(graph, attention, already);
  const int64_t weight = network.Run();
  if (weight >= network.infinite()) {
    return InvalidArgument("no cut at " + graph.ops[attention].name +
                           ": something that depends on it is needed before it");
  }
  Cut cut;
  cut.before = network.LargestSourceSide();
  cut.values = CrossingValues(graph, attention, cut.before);
  for (const ValueId value : cut.values) cut.bytes_per_token += graph.values[value].bytes_per_token;
  // A cut that weighs as much as a flow is a minimum one.
  if (cut.bytes_per_token != weight) {
    return InternalError("cut at " + graph.ops[attention].name + ": the values cut weigh " +
                         std::to_string(cut.bytes_per_token) +
                         " bytes per token, the maximum flow says " + std::to_string(weight));
  }
  return cut;
}

}  // namespace lamina
