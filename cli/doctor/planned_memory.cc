#include "cli/doctor/planned_memory.h"

#include <algorithm>

#include "cost/cost_model.h"
#include "splitter/slices.h"
#include "wire/wire_format.h"

namespace lamina {
namespace {

// Between a compute node and a memory node with so many KV heads each has a window, and a buffer of
// the size of the other's.
int64_t BytesPerPair(const ClusterConfig& config, const ModelConfig& model, int kv_heads) {
  const WireShape wire{kv_heads * (model.num_heads / model.num_kv_heads),
                       kv_heads,
                       model.head_dim,
                       config.kv_dtype.value_or(model.dtype),
                       config.max_num_seqs,
                       std::max(1, config.num_batches),
                       config.wire_dtype.value_or(model.dtype),
                       config.overlap == Switch::kOn};
  return static_cast<int64_t>(wire.memory_window_bytes() + wire.compute_window_bytes());
}

// Rows of the residual stream, and with tensor parallelism two partial sums of it, of every batch;
// again in a window and in a buffer.
int64_t BytesPerComputePair(const ClusterConfig& config, const ModelConfig& model) {
  const int64_t rows_bytes = int64_t{config.max_num_batched_tokens} * model.hidden_size * 4;
  return 2 * rows_bytes * (config.tensor_parallel_size > 1 ? 3 : 1) *
         std::max(1, config.num_batches);
}

}  // namespace

int64_t PlannedLockedBytes(const ClusterConfig& config, const ModelConfig& model, const View& view,
                           const std::string& host) {
  int64_t num_compute = 0, num_memory = 0;
  int kv_heads = 0;  // of the memory node that has most
  for (const Member& node : view.members()) {
    if (node.role == NodeRole::kCompute) {
      ++num_compute;
    } else {
      ++num_memory;
      kv_heads = std::max(kv_heads, node.num_kv_heads);
    }
  }
  const int64_t per_pair = BytesPerPair(config, model, kv_heads);
  int64_t most = 0;
  for (const NodeConfig& node : config.daemons()) {
    if (node.host != host) continue;
    const bool is_compute = node.role == NodeRole::kCompute;
    const int64_t bytes = (is_compute ? num_memory : num_compute) * per_pair +
                          (is_compute ? num_compute - 1 : 0) * BytesPerComputePair(config, model);
    most = std::max(most, bytes);
  }
  return most;
}

int64_t PlannedBytes(const ClusterConfig& config, const ModelConfig& model,
                     const std::string& host) {
  const Result<Graph> graph = TraceModel(model);
  const int64_t weights = graph.ok() ? WeightBytes(*graph, model.dtype) : 0;
  const int64_t num_shares =
      int64_t{config.pipeline_parallel_size} * std::max(1, config.tensor_parallel_size);
  int64_t bytes = 0;
  for (const NodeConfig& node : config.daemons()) {
    if (node.host != host || node.device != "cpu") continue;
    bytes += node.memory_bytes;
    if (node.role == NodeRole::kCompute) bytes += weights / std::max<int64_t>(1, num_shares);
  }
  return bytes;
}

}  // namespace lamina
