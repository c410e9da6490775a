// The manager's connections to its nodes: reaches and configures them, sends orders, notices who is
// gone.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/inbox.h"
#include "base/mutex.h"
#include "base/turns.h"
#include "manager/attention_speed.h"
#include "manager/cluster_config.h"
#include "manager/reconnect.h"
#include "manager/resolve_config.h"
#include "manager/step_executor.h"
#include "manager/trace_collector.h"
#include "model/model_config.h"
#include "splitter/topology.h"
#include "transport/control_channel.h"
#include "transport/control_connecting.h"

namespace lamina {

// Lines for a person who waits: "compute node c0: 1.2 of 4.4 GB of weights".
using StartProgress = std::function<void(const std::string& line)>;

// What connecting a cluster by turns needs besides the cluster.
struct ConnectMeans {
  StartProgress progress = nullptr;
  // Asked with every turn, which then is due ten times a second; true: connecting ends with an
  // error. Null: never.
  std::function<bool()> interrupted = nullptr;
  StartConnecting connect = StartConnectControl;
  EndExecutor end = EndOnAThread;  // of a try in vain
  // Called when a turn is worth while before it is due, as long as the procedure and the executor
  // that it made live. Thread: any.
  OnChange on_change = [] {};
};

// The slowest kind of `paths`: of shm, verbs, ucx, tcp the last. Null if there is none.
const DataPathStatus* WorstPath(std::span<const DataPathStatus> paths);

class ClusterExecutor : public StepExecutor {
 public:
  // Connects to every node of `config` and configures it: memory nodes first (they say where their
  // data path listens), then the compute nodes, which load the weights at the same time and then
  // join each other. A node that cannot be reached within start_timeout is an error that names it,
  // its address and the cause. So is `interrupted`, which is asked all the while; null: never.
  // REQUIRES: ResolveConfig accepted `config`.
  static Result<std::unique_ptr<ClusterExecutor>> Connect(
      const ClusterConfig& config, const ModelConfig& model, const StartProgress& progress,
      std::function<bool()> interrupted = nullptr);

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
                                                    const ModelConfig& model,
                                                    std::map<NodeId, std::string> lost,
                                                    TimePoint until, ConnectMeans means);

  // Which of the lost nodes could serve again: LookForNodes says more.
  static Procedure<std::set<NodeId>> LookByTurns(Turns& turns, const ClusterConfig& config,
                                                 const ModelConfig& model,
                                                 std::map<NodeId, std::string> lost,
                                                 TimePoint until, ConnectMeans means);
  ~ClusterExecutor() override;

  std::vector<KvNode> kv_nodes() const override;
  NodeId KvNodeOf(NodeId node) const override { return Find(node)->group; }
  void Start(std::function<void(ExecutorEvent)> on_event) override;
  void Submit(const StepPlan& plan, std::vector<NewSequence> added) override;
  void Leave(NodeId node) override;
  TimePoint Turn(TimePoint now) override;
  std::vector<NodeStatus> nodes() override;

  // Writes what the nodes do into `file`, which is borrowed until the executor is gone. REQUIRES:
  // before Start, at most once.
  void RecordTrace(TraceFile& file);

  // Whether nodes time the steps submitted from now on; at first they do. Thread: any.
  void TimeSteps(bool timed) { time_steps_ = timed; }

 private:
  // A member of the view and the connection to it.
  struct Node : Member {
    Node(const Member& member, const NodeConfig& of_file) : Member(member), config(of_file) {}
    const NodeConfig config;
    std::unique_ptr<ControlConnection> connection;
    Inbox<ControlFrame> answers;  // until Start
    Configured configured;        // fixed after Connect
    // Lost before this executor, or it shares tokens with a node that was: has no connection.
    bool left_out() const { return state == MemberState::kLost; }
    std::string address() const { return ClusterConfig::Address(config); }
    std::string name() const { return std::string(NodeRoleName(role)) + " node " + config.name; }
  };

  // What the threads of connections have learned of a node.
  struct Heard {
    Status lost;  // ok while the node is not
    MemoryStats stats;
    AttentionSpeed speed;        // of a memory node
    int64_t stale_messages = 0;  // of a compute node
    StepTimes times;
  };

  // `lost` says why nodes of `view` are taken to be lost. After `until` it waits for nobody but
  // nodes that are loading weights.
  ClusterExecutor(const ClusterConfig& config, const ModelConfig& model, View view,
                  const std::map<NodeId, std::string>& lost, TimePoint until, ConnectMeans means);

  // Null if there is no such node.
  Node* Find(NodeId id) const;

  // Reaches all nodes within `reach_patience` and configures memory nodes within `patience`.
  Procedure<Status> Open(Turns& turns, Clock::duration reach_patience, Clock::duration patience);
  // Why the nodes of this executor cannot be enough; ok: they may be. `lost` as the constructor's.
  Status TooFewLeft(const std::map<NodeId, std::string>& lost) const;
  // REQUIRES of these two: Open failed, with `why`.
  Procedure<std::map<NodeId, std::string>> NewlyLost(Turns& turns, Status why);
  bool HasCut();
  Status LossOf(const Node& node);
  Procedure<Status> ConnectNode(Turns& turns, Node& node, const ControlOptions& options,
                                TimePoint latest);
  Procedure<Result<std::unique_ptr<ControlConnection>>> Reach(Turns& turns, const Node& node,
                                                              const ControlOptions& options,
                                                              TimePoint latest);
  Procedure<Status> AskIfFree(Turns& turns, Node& node, const ControlOptions& options);
  Procedure<Status> ConfigureMemoryNode(Turns& turns, Node& node, TimePoint latest);
  Procedure<Status> ConfigureComputeNodes(Turns& turns);
  Procedure<Status> JoinComputeNodes(Turns& turns);
  Procedure<Status> ConfigureOnceFree(Turns& turns, Node& node, MessageType type,
                                      std::string request, Clock::duration patience);
  Procedure<Status> AwaitConfigured(Turns& turns, Node& node, Clock::duration patience);
  // Messages to nodes: cluster_requests.cc.
  Result<ConfigureMemory> MemoryRequest(const Node& node) const;
  Result<ConfigureCompute> ComputeRequest(const Node& node) const;  // REQUIRES: a compute node
  ConnectCompute JoinRequest() const;
  // What both kinds of nodes are told, for a model whose heads one node has all.
  Status FillRequest(const Node& node, ConfigureNode& request) const;
  TimePoint Within(TimePoint now, Clock::duration patience) const {
    return std::min(until_, now + patience);
  }
  // When the next turn of a wait that ends at `latest` is due.
  TimePoint NextLook(TimePoint now, TimePoint latest) const;
  void OnFrame(Node& node, ControlFrame frame);
  bool IsIrreplaceable(const Node& node);  // REQUIRES: another node says that it is lost
  void OnStats(Node& node, const MemoryStats& stats);
  void OnTrace(const Node& node, const ControlFrame& frame);
  void AddTimes(Node& sender, const StepResult& result) REQUIRES(mutex_);
  // Empty until all are known.
  std::vector<NodeSpeed> Speeds() REQUIRES(mutex_);
  void AskForStats();
  void OnLost(Node& node, const Status& status);
  bool OrdersFit(const StepPlan& plan, std::span<const NewSequence> added) const;
  void SendOrders(const StepPlan& plan, std::vector<NewSequence> added);
  void SendOrder(Node& node, MessageType type, std::string order);
  void AddLeftOut(StepResult& result) REQUIRES(mutex_);
  bool local() const { return num_memory_nodes_ == 0; }
  SessionLimits limits() const;
  std::optional<ModelledLink> modelled_link() const;
  Result<ControlOptions> control_options() const;

  const ClusterConfig config_;
  const ModelConfig model_;
  const View view_;
  const uint64_t epoch_;
  const ConnectMeans means_;
  TimePoint until_;
  std::string session_token_;  // what compute nodes show to memory nodes
  int num_memory_nodes_ = 0;
  std::vector<Node*> compute_;    // of nodes_, without those that are left out
  const Node* failed_ = nullptr;  // the one that is being configured; when Open has failed, where
  // Of the engine's thread. When nodes were asked for their counters by the clock, and whether a
  // step was submitted since.
  TimePoint asked_for_stats_ = TimePoint::min();
  bool submitted_since_ = false;
  SpeedRounds speed_rounds_;
  std::atomic<bool> speeds_known_ = false;
  Mutex mutex_;
  std::function<void(ExecutorEvent)> on_event_ GUARDED_BY(mutex_);  // set by Start
  std::unordered_map<NodeId, Heard> heard_ GUARDED_BY(mutex_);      // of every node
  // Of steps in flight: sequences that have no part in them.
  std::map<StepId, std::vector<SequenceId>> left_out_ GUARDED_BY(mutex_);
  std::atomic<bool> time_steps_{true};
  std::unique_ptr<TraceCollector> trace_;  // null: no trace is written
  // Ascending by id. Fixed after Connect; last: their connections' threads use the members above.
  std::vector<std::unique_ptr<Node>> nodes_;
};

// For ReconnectMeans, which set `on_change` of these means.
LookForNodes LookAmong(const ClusterConfig& config, const ModelConfig& model,
                       const ConnectMeans& means = {});

// Likewise. `use`, if not null, gets each new executor before it starts.
Reconnect ReconnectTo(const ClusterConfig& config, const ModelConfig& model,
                      const ConnectMeans& means = {},
                      std::function<void(ClusterExecutor&)> use = nullptr);

}  // namespace lamina
