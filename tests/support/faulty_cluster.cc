#include "tests/support/faulty_cluster.h"

#include "manager/cluster_executor.h"
#include "tests/support/paths.h"

namespace lamina::testing {
namespace {

// Adds up its faults where they can be read when the node that owns it is gone.
class CountedFabric final : public Fabric {
 public:
  CountedFabric(std::unique_ptr<FaultyFabric> inner, std::atomic<uint64_t>& total)
      : inner_(std::move(inner)), total_(total) {}
  ~CountedFabric() override { total_ += inner_->counts().total(); }

  std::string_view name() const override { return inner_->name(); }
  const Limits& limits() const override { return inner_->limits(); }
  Result<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return inner_->Allocate(bytes);
  }
  Result<std::unique_ptr<Listener>> Listen(const std::string& address) override {
    return inner_->Listen(address);
  }
  Result<std::unique_ptr<Connecting>> StartConnect(const std::string& address,
                                                   const EndpointOptions& options,
                                                   Deadline deadline) override {
    return inner_->StartConnect(address, options, deadline);
  }
  bool Arm() override { return inner_->Arm(); }
  int event_fd() const override { return inner_->event_fd(); }

 private:
  const std::unique_ptr<FaultyFabric> inner_;
  std::atomic<uint64_t>& total_;
};

NodeConfig NodeAt(const std::string& name, NodeRole role, const std::string& address) {
  NodeConfig node;
  node.name = name;
  node.role = role;
  node.port = std::stoi(address.substr(address.rfind(':') + 1));
  return node;
}

}  // namespace

OpenLadder FaultyCluster::WithFaults(const FaultyClusterOptions& options, const FaultPlan& plan) {
  return [this, open = options.open_fabric,
          plan](std::span<const std::string>) -> Result<std::unique_ptr<Ladder>> {
    std::vector<std::unique_ptr<Fabric>> fabrics;
    fabrics.push_back(
        std::make_unique<CountedFabric>(std::make_unique<FaultyFabric>(open(), plan), num_faults_));
    return std::make_unique<Ladder>(std::move(fabrics));
  };
}

Result<std::unique_ptr<FaultyCluster>> FaultyCluster::Create(const FaultyClusterOptions& options) {
  std::unique_ptr<FaultyCluster> cluster(new FaultyCluster());
  ClusterConfig config;
  for (int i = 0; i < options.num_memory_nodes; ++i) {
    MemoryNodeOptions node;
    node.name = "m" + std::to_string(i);
    node.memory_bytes = 4 << 20;
    node.num_threads = 1;
    FaultPlan plan = options.of_memory;
    plan.seed += static_cast<uint64_t>(i);
    node.device = options.device;
    node.open_ladder = cluster->WithFaults(options, plan);
    LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<MemoryNode> memory, MemoryNode::Create(node));
    config.nodes.push_back(NodeAt(node.name, NodeRole::kMemory, memory->address()));
    cluster->threads_.emplace_back([raw = memory.get()] { raw->Run(); });
    cluster->memory_nodes_.push_back(std::move(memory));
  }
  for (int i = 0; i < options.num_compute_nodes; ++i) {
    NodeOptions node;
    node.name = "c" + std::to_string(i);
    node.num_threads = 1;
    FaultPlan plan = options.of_compute;
    plan.seed += static_cast<uint64_t>(i);
    node.device = options.device;
    node.open_ladder = cluster->WithFaults(options, plan);
    LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<ComputeNode> compute, ComputeNode::Create(node));
    config.nodes.push_back(NodeAt(node.name, NodeRole::kCompute, compute->address()));
    cluster->threads_.emplace_back([raw = compute.get()] { raw->Run(); });
    cluster->compute_nodes_.push_back(std::move(compute));
  }

  config.model_path = SourcePath("/models/tiny-stories");
  config.kv_dtype = DType::kF32;
  config.payload_checksum = Switch::kOn;
  config.kv_head_parallel = options.kv_head_parallel;
  config.spread_tokens = options.spread_tokens;
  config.num_batches = options.num_batches;
  config.pipeline_parallel_size = options.pipeline_parallel_size;
  config.tensor_parallel_size = options.tensor_parallel_size;
  config.overlap = options.overlap ? Switch::kOn : Switch::kOff;
  config.polling = options.polling;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 64;
  config.peer_timeout = options.peer_timeout;
  config.step_timeout = options.step_timeout;
  LAMINA_ASSIGN_OR_RETURN(const ModelConfig model, ModelConfig::Load(config.model_path));
  LAMINA_RETURN_IF_ERROR(ResolveConfig(config, model));
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<ClusterExecutor> executor,
                          ClusterExecutor::Connect(config, model, {}));
  cluster->engine_ =
      std::make_unique<ServingEngine>(ServingEngineOptions::Of(config, model), std::move(executor));
  return cluster;
}

uint64_t FaultyCluster::Stop() {
  engine_.reset();
  for (const std::unique_ptr<ComputeNode>& node : compute_nodes_) node->Stop();
  for (const std::unique_ptr<MemoryNode>& node : memory_nodes_) node->Stop();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  compute_nodes_.clear();
  memory_nodes_.clear();
  return num_faults_;
}

FaultyCluster::~FaultyCluster() { Stop(); }

}  // namespace lamina::testing
