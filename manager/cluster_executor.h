// The nodes of a cluster as a StepExecutor: sends them steps' orders over their connections
// (node_connections.h), and hears results, counters and losses.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/turns.h"
#include "manager/attention_speed.h"
#include "manager/cluster_config.h"
#include "manager/connecting_nodes.h"
#include "manager/node_connections.h"
#include "manager/reconnect.h"
#include "manager/resolve_config.h"
#include "manager/standbys.h"
#include "manager/step_executor.h"
#include "manager/trace_collector.h"
#include "model/model_config.h"

namespace lamina {

// The slowest kind of `paths`: of shm, verbs, ucx, tcp the last. Null if there is none.
const DataPathStatus* WorstPath(std::span<const DataPathStatus> paths);

class ClusterExecutor : public StepExecutor {
 public:
  // Connects to every node of `config` and configures it: memory nodes first (they say where their
  // data path listens), then the compute nodes, which load the weights at the same time and then
  // join each other. A node that cannot be reached within start_timeout is an error that names it,
  // its address and the cause. So is `interrupted`, which is asked all the while; null: never.
  // `manager_id`: as ConnectMeans. REQUIRES: ResolveConfig accepted `config`.
  static Result<std::unique_ptr<ClusterExecutor>> Connect(
      const ClusterConfig& config, const ModelConfig& model, const StartProgress& progress,
      std::function<bool()> interrupted = nullptr, uint64_t manager_id = 0);

  // The same with the nodes of `config` that are not lost, and without those that turn out to be.
  // kPeerLost if no compute node is left, or none that holds KV; names what was lost. If compute
  // nodes that share the model live but do not reach each other, it tries again for start_timeout.
  // `until`: as Reconnect.
  static Result<std::unique_ptr<ClusterExecutor>> ConnectWithout(
      const ClusterConfig& config, const ModelConfig& model, std::map<NodeId, std::string> lost,
      Deadline until, const StartProgress& progress, std::function<bool()> interrupted = nullptr);

  // The same without waiting. REQUIRES: what is handed over by reference outlives the procedure.
  using Connected = Result<std::unique_ptr<ClusterExecutor>>;
  static Procedure<Connected> ConnectByTurns(Turns& turns, const ClusterConfig& config,
                                             const ModelConfig& model, ConnectMeans means);
  static Procedure<Connected> ConnectWithoutByTurns(Turns& turns, const ClusterConfig& config,
                                                    const ModelConfig& model, KnownNodes known,
                                                    TimePoint until, ConnectMeans means);

  ~ClusterExecutor() override;

  std::vector<KvNode> kv_nodes() const override { return connections_->kv_nodes(); }
  int largest_interval() const override { return connections_->largest_interval(); }
  std::map<NodeId, ElasticCache> elastic_kv() const override { return connections_->elastic_kv(); }
  NodeId KvNodeOf(NodeId node) const override { return connections_->Find(node)->group; }
  std::map<NodeId, NodeKv> kv() const override { return connections_->kv(); }
  std::map<NodeId, LeftKv> TakeLeftKv() override { return connections_->TakeLeftKv(); }
  void Start(std::function<void(ExecutorEvent)> on_event) override;
  void Submit(const StepPlan& plan, std::vector<NewSequence> added) override;
  void Leave(NodeId node) override;
  TimePoint Turn(TimePoint now) override;
  std::vector<NodeStatus> nodes() override;
  std::vector<NodeStatus> standbys() override { return standbys_.nodes(); }

  // Writes what the nodes do into `file`, which is borrowed until the executor is gone. REQUIRES:
  // before Start, at most once.
  void RecordTrace(TraceFile& file);

  // Whether nodes time the steps submitted from now on; at first they do. Thread: any.
  void TimeSteps(bool timed) { time_steps_ = timed; }

 private:
  using Node = NodeConnections::Node;

  // What the threads of connections have learned of a node.
  struct Heard {
    MemoryStats stats;
    AttentionSpeed speed;        // of a memory node
    int64_t stale_messages = 0;  // of a compute node
    StepTimes times;
  };

  ClusterExecutor(std::unique_ptr<NodeConnections> connections, const ModelConfig& model,
                  const ConnectMeans& means);

  void OnFrame(Node& node, ControlFrame frame);
  bool IsIrreplaceable(const Node& node);  // REQUIRES: another node says that it is lost
  void OnStats(Node& node, const MemoryStats& stats);
  void TellInside(const Node& node, const LayersInside& inside);
  void OnTrace(const Node& node, const ControlFrame& frame);
  void OnPeerState(const Node& node, const ControlFrame& frame);
  void AddTimes(Node& sender, const StepResult& result) REQUIRES(mutex_);
  // Empty until all are known.
  std::vector<NodeSpeed> Speeds() REQUIRES(mutex_);
  void AskForStats();
  void OnLost(const Node& node, const Status& status);
  bool OrdersFit(const StepPlan& plan, std::span<const NewSequence> added) const;
  void SendOrders(const StepPlan& plan, std::vector<NewSequence> added);
  void SendOrder(Node& node, MessageType type, std::string order);
  void AddLeftOut(StepResult& result) REQUIRES(mutex_);

  // Of the engine's thread. When nodes were asked for their counters by the clock, and whether a
  // step was submitted since.
  TimePoint asked_for_stats_{};
  bool submitted_since_ = false;
  SpeedRounds speed_rounds_;
  std::atomic<bool> speeds_known_ = false;
  Mutex mutex_;
  std::function<void(ExecutorEvent)> on_event_ GUARDED_BY(mutex_);  // set by Start
  std::unordered_map<NodeId, Heard> heard_ GUARDED_BY(mutex_);      // of every node
  // Of steps in flight: sequences that have no part in them.
  std::map<StepId, std::vector<FailedSequence>> left_out_ GUARDED_BY(mutex_);
  std::atomic<bool> time_steps_{true};
  std::unique_ptr<TraceCollector> trace_;  // null: no trace is written
  const std::unique_ptr<NodeConnections> connections_;
  Standbys standbys_;
};

// For ReconnectMeans, which set `on_change` of these means.
LookForNodes LookAmong(const ClusterConfig& config, const ModelConfig& model,
                       const ConnectMeans& means = {});

// Likewise. `use`, if not null, gets each new executor before it starts.
Reconnect ReconnectTo(const ClusterConfig& config, const ModelConfig& model,
                      const ConnectMeans& means = {},
                      std::function<void(ClusterExecutor&)> use = nullptr);

}  // namespace lamina
