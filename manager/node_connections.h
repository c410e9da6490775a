// The manager's connections to the nodes of a cluster: reaches and configures them, and notices who
// is gone. What is sent over them then is the executor's (cluster_executor.h).
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/inbox.h"
#include "base/mutex.h"
#include "base/turns.h"
#include "manager/cluster_config.h"
#include "manager/compute_places.h"
#include "manager/reconnect.h"
#include "model/model_config.h"
#include "scheduler/scheduler.h"
#include "splitter/topology.h"
#include "transport/control_channel.h"
#include "transport/control_connecting.h"
#include "wire/session_messages.h"

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
  // ConfigureMemory::manager_id. Not 0: when it connects nodes for the first time, the manager
  // takes over what another one left on memory nodes.
  uint64_t manager_id = 0;
  EndConnections end = EndOnAThread;  // of a try in vain
  // Called when a turn is worth while before it is due, as long as the procedure and the executor
  // that it made live. Thread: any.
  OnChange on_change = [] {};
};

// Thread: one at a time, but where a function says otherwise.
class NodeConnections {
 public:
  // A member of the view and the connection to it.
  struct Node : Member {
    Node(const Member& member, const NodeConfig& of_file) : Member(member), config(of_file) {}
    const NodeConfig config;
    std::unique_ptr<ControlConnection> connection;
    Inbox<ControlFrame> answers;  // until Start
    Configured configured;        // fixed once connections are open
    // Lost before connections were opened, or it shares tokens with a node that was: has no
    // connection.
    bool left_out() const { return state == MemberState::kLost; }
    std::string address() const { return ClusterConfig::Address(config); }
    std::string name() const { return std::string(NodeRoleName(role)) + " node " + config.name; }
  };

  // Called by connections' threads; they must not block.
  struct Callbacks {
    // But for answers to what configures nodes.
    std::function<void(Node&, ControlFrame)> on_frame;
    // LossOf says so already.
    std::function<void(Node&, const Status&)> on_lost;
  };

  // Connect to nodes and configure them, as ClusterExecutor's ConnectByTurns and
  // ConnectWithoutByTurns say. REQUIRES: what is handed over by reference outlives the procedure.
  using Opened = Result<std::unique_ptr<NodeConnections>>;
  static Procedure<Opened> OpenByTurns(Turns& turns, const ClusterConfig& config,
                                       const ModelConfig& model, ConnectMeans means);
  static Procedure<Opened> OpenWithoutByTurns(Turns& turns, const ClusterConfig& config,
                                              const ModelConfig& model, KnownNodes known,
                                              TimePoint until, ConnectMeans means);
  // Which of the lost nodes could serve again: LookForNodes says more.
  static Procedure<FoundNodes> LookByTurns(Turns& turns, const ClusterConfig& config,
                                           const ModelConfig& model,
                                           std::map<NodeId, std::string> lost, TimePoint until,
                                           ConnectMeans means);
  // Has the compute node in `place` of `config` load its weights, and stays connected to it until
  // it is lost: returns why. `on_ready` is called when the weights are there.
  static Procedure<Status> KeepReadyByTurns(Turns& turns, const ClusterConfig& config,
                                            const ModelConfig& model, NodeId place,
                                            ConnectMeans means, std::function<void()> on_ready);
  // Closes.
  ~NodeConnections();
  NodeConnections(const NodeConnections&) = delete;

  // News go to `callbacks` from here on; frames before it are dropped. REQUIRES: called once.
  void Start(Callbacks callbacks);

  // Takes leave of the nodes, and waits for a moment until they know. No callback runs after it
  // returns. It may be called again.
  void Close();

  // Ascending by id, also those that are lost.
  std::span<const std::unique_ptr<Node>> nodes() const { return nodes_; }
  // The compute nodes without those that are left out.
  std::span<Node* const> compute() const { return compute_; }
  // Null if there is no such node.
  Node* Find(NodeId id) const;
  // See StepExecutor.
  std::vector<KvNode> kv_nodes() const;
  std::map<NodeId, NodeKv> kv() const;
  std::map<NodeId, LeftKv> TakeLeftKv();

  // Why the node is lost; ok: it is not. Thread: any.
  Status LossOf(const Node& node);
  // The node is of no use any more: says so to `on_lost`. Thread: any.
  void Lose(Node& node, const Status& status);
  // Closes the connection without waiting; nobody is told. Thread: any but connections'.
  void Leave(Node& node);

  const ClusterConfig& config() const { return config_; }
  uint64_t epoch() const { return epoch_; }  // of the nodes' session
  bool local() const { return num_memory_nodes_ == 0; }

 private:
  // `known` is of nodes of `view`. After `until` it waits for nobody but nodes that are loading
  // weights.
  NodeConnections(const ClusterConfig& config, const ModelConfig& model, View view,
                  const KnownNodes& known, TimePoint until, ConnectMeans means);

  // Reaches all nodes within `reach_patience` and configures memory nodes within `patience`.
  Procedure<Status> Open(Turns& turns, Clock::duration reach_patience, Clock::duration patience);
  // Why these nodes cannot be enough; ok: they may be. `lost`: what the constructor was told of.
  Status TooFewLeft(const std::map<NodeId, std::string>& lost) const;
  // REQUIRES of these two: Open failed, with `why`.
  Procedure<std::map<NodeId, std::string>> NewlyLost(Turns& turns, Status why);
  bool HasCut();
  std::string MissingComputeNode();
  Procedure<Status> ConnectNode(Turns& turns, Node& node, const ControlOptions& options,
                                TimePoint latest);
  Procedure<Result<std::unique_ptr<ControlConnection>>> Reach(Turns& turns, const Node& node,
                                                              const ControlOptions& options,
                                                              TimePoint latest);
  Procedure<Status> AskIfFree(Turns& turns, Node& node);
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
  SessionLimits limits() const;
  std::optional<ModelledLink> modelled_link() const;
  Result<ControlOptions> control_options() const;

  const ClusterConfig config_;
  const ModelConfig model_;
  const View view_;
  const HeldKv held_;
  const uint64_t epoch_;
  const ConnectMeans means_;
  TimePoint until_;
  std::string session_token_;  // what compute nodes show to memory nodes
  int num_memory_nodes_ = 0;
  std::vector<Node*> compute_;    // of nodes_, without those that are left out
  const Node* failed_ = nullptr;  // the one that is being configured; when Open has failed, where
  Mutex mutex_;
  Callbacks callbacks_ GUARDED_BY(mutex_);
  std::unordered_map<NodeId, Status> lost_ GUARDED_BY(mutex_);  // ok: it is not
  // Ascending by id. Fixed after Open; last: their connections' threads use the members above.
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace lamina
