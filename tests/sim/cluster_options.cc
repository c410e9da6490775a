#include "tests/sim/cluster_options.h"

#include <algorithm>
#include <utility>

#include "manager/resolve_config.h"

namespace lamina::sim {
namespace {

using std::chrono::seconds;

constexpr auto kPeerTimeout = milliseconds(200);
constexpr auto kSuspectAfter = milliseconds(40);
constexpr auto kStepTimeout = seconds(5);
constexpr int64_t kMostTokens = 48;
// Nodes that were lost again soon after their return are left alone for so long.
constexpr RetryOptions kRetry{.first = milliseconds(500),
                              .most = seconds(2),
                              .most_after_return = seconds(4),
                              .settled = seconds(60)};
// The manager does not give up before every fault is over.
constexpr auto kGiveUpAfter = seconds(600);

}  // namespace

Result<testing::VirtualClusterOptions> OptionsOf(const ClusterShape& shape,
                                                 const Expected& expected) {
  testing::Deployment deployment;
  const int num_shares = shape.pipeline_parallel_size * shape.tensor_parallel_size;
  deployment.num_compute_nodes = shape.num_compute_nodes / num_shares;
  deployment.num_memory_nodes = shape.num_memory_nodes;
  deployment.pipeline = shape.pipeline;
  deployment.pipeline_parallel_size = shape.pipeline_parallel_size;
  deployment.tensor_parallel_size = shape.tensor_parallel_size;
  deployment.kv_head_parallel = shape.kv_head_parallel;
  deployment.spread_tokens = shape.spread_tokens;
  deployment.overlap = shape.overlap ? Switch::kOn : Switch::kOff;
  deployment.kv_dtype = DType::kF32;
  deployment.prefix_caching = shape.prefix_caching;
  deployment.max_num_seqs = shape.max_num_seqs;
  deployment.max_num_batched_tokens = std::max(shape.max_num_seqs, shape.max_num_batched_tokens);
  deployment.memory_bytes = shape.tokens_per_pool *
                            KvBytesPerToken(expected.model(), deployment.kv_dtype) /
                            shape.kv_head_parallel;
  deployment.peer_timeout = kPeerTimeout;
  deployment.suspect_after = kSuspectAfter;
  deployment.step_timeout = kStepTimeout;
  deployment.start_timeout = kGiveUpAfter;
  deployment.model = expected.model_dir();
  deployment.num_standbys = shape.num_standbys;
  ClusterConfig config;
  config.nodes = testing::VirtualCluster::NodesOf(deployment);
  config.standbys = testing::VirtualCluster::StandbysOf(deployment);
  config.payload_checksum = Switch::kOn;
  config.max_model_len = kMostTokens;
  testing::VirtualClusterOptions options;
  options.model = expected.model();
  LAMINA_ASSIGN_OR_RETURN(options.config,
                          testing::ConfigOf(deployment, options.model, std::move(config)));
  options.config.queue = shape.queue;
  options.retry = kRetry;
  return options;
}

}  // namespace lamina::sim
