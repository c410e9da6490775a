// A whole cluster on one thread in virtual time: the engine's core, the manager's connections, and
// the daemons of compute and memory nodes, which take turns. Nobody waits: when nobody has anything
// to do, the time goes on to when somebody has. The model is really computed and messages of the
// data path really pass, so a run is a function of its input.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/turns.h"
#include "compute_node/compute_node.h"
#include "manager/cluster_executor.h"
#include "manager/engine_core.h"
#include "manager/engine_service.h"
#include "manager/manager_link.h"
#include "manager/remote_requests.h"
#include "memory_node/memory_node.h"
#include "tests/support/control_network.h"
#include "tests/support/serving.h"
#include "tests/support/virtual_clock.h"

namespace lamina::testing {

// What the nodes' data paths go over.
class VirtualFabrics {
 public:
  virtual ~VirtualFabrics() = default;
  // For NodeOptions::open_ladder of a node.
  virtual OpenLadder OpenerOf(const std::string& node) = 0;
  // As ControlNetwork's.
  virtual bool Deliver() = 0;
  virtual TimePoint next() const = 0;
};

struct VirtualClusterOptions {
  ClusterConfig config;  // resolved
  ModelConfig model;
  // Borrowed; null: the loopback fabric, over which everything arrives at once.
  VirtualFabrics* fabrics = nullptr;
  // How long a frame of a control channel is under way.
  std::function<Clock::duration()> control_latency = [] { return microseconds(50); };
  // How long a turn takes in which the node of this name, or "manager", has done something. Null:
  // no time, so that everybody has a turn in each microsecond in which anybody does something.
  std::function<Clock::duration(const std::string& who)> turn_takes = nullptr;
  // Sees what the nodes tell, in the order in which the engine hears of it, and before it does. May
  // be null.
  std::function<void(const ExecutorEvent& told)> on_told = nullptr;
  RetryOptions retry;
  // Requests come through a front, where they wait while there is no manager, and which sends them
  // to the next one.
  bool with_front = false;
};

// REQUIRES: there is one at a time. Thread: owner, and no other one reads the clock.
class VirtualCluster {
 public:
  // Starts the nodes and begins to connect them.
  static Result<std::unique_ptr<VirtualCluster>> Create(const VirtualClusterOptions& options);
  // The data path goes over the loopback fabric, whatever the deployment says.
  static Result<std::unique_ptr<VirtualCluster>> Create(const Deployment& deployment);
  static Result<VirtualClusterOptions> OptionsOf(const Deployment& deployment);
  ~VirtualCluster();

  // The nodes of a deployment, with ids that have gaps: nobody may take them for indices.
  static std::vector<NodeConfig> NodesOf(const Deployment& deployment);
  static std::vector<NodeConfig> StandbysOf(const Deployment& deployment);

  TimePoint now() const { return Clock::now(); }
  const ClusterConfig& config() const { return options_.config; }

  // Takes turns until `done`, which is asked after each round; returns false if `patience` is over
  // before.
  bool RunUntil(const std::function<bool()>& done, Clock::duration patience);

  // The manager's process is gone, with the requests that it had, but for those of a front. A new
  // one is started, and begins to connect the nodes; also where the one before could not.
  void KillManager();
  void StartManager();

  // Whether the manager has connected the nodes, and why it could not.
  bool serves() const { return core_ != nullptr; }
  const Status& failure() const { return failure_; }

  // REQUIRES of these: serves(), unless there is a front.
  Result<RequestId> Submit(GenerateRequest request, Engine::Sink sink);
  void Abort(RequestId request);
  // REQUIRES: serves(). Why nothing will be served any more; ok: it is, or may be.
  const Status& given_up() const { return core_->given_up(); }
  // Shows no node while there is no manager that serves.
  EngineStatus status() const;

  // Whether nodes are being connected anew, and whether lost ones are being looked for.
  bool reconnecting() const { return reconnects_; }
  bool looking() const { return looks_; }

  // The node's process is gone: nobody hears of it but by the ends of its connections.
  void Kill(const std::string& name);
  // Its daemon is started again. REQUIRES: it was killed.
  Status Start(const std::string& name);
  bool runs(const std::string& name) const { return daemons_.contains(name); }
  // Its process does not run meanwhile, and its connections are silent. REQUIRES: it runs.
  void Pause(const std::string& name);
  void Resume(const std::string& name);
  bool paused(const std::string& name) const;

  ControlNetwork& network() { return network_; }
  // Of the front, which connects as if it were a manager, and the manager, which listens there.
  ControlNetwork& front_network() { return front_network_; }
  static constexpr const char* kFrontAddress = "front:0";
  // Silence after which either takes the other for lost.
  static constexpr auto kFrontPatience = std::chrono::seconds(4);
  // Where the node's control channel ends.
  std::string AddressOf(const std::string& name) const;

 private:
  using Node = std::variant<std::unique_ptr<ComputeNode>, std::unique_ptr<MemoryNode>>;
  struct Daemon {
    Node node;
    TimePoint free_at{};  // when its last turn is over
    bool paused = false;
  };
  using Connected = ClusterExecutor::Connected;
  class CoreEngine;
  // A front, and how it reaches the manager.
  struct Front {
    Front(const VirtualClusterOptions& options, ControlNetwork& network);
    bool changed = true;  // something has come for it
    RemoteRequests requests;
    ManagerLink link;
  };
  // The manager's end.
  struct FrontDoor {
    std::unique_ptr<Engine> engine;
    std::unique_ptr<ControlPort> port;
    std::unique_ptr<EngineService> service;
  };
  explicit VirtualCluster(const VirtualClusterOptions& options);

  Result<Node> Open(const NodeConfig& node);
  NodeConfig Find(const std::string& name) const;
  ConnectMeans Means();
  // A turn of everybody who is free. Returns whether anybody did something.
  bool TurnAll();
  bool TurnDaemon(const std::string& name, Daemon& daemon);
  bool TurnManager();
  bool TurnTasks();
  bool TurnEngine();
  void TakeConnected(Connected outcome);
  void EndManager();
  void ServeFront();
  bool TurnFront();
  // When a turn that begins now, and in which something is done, is over.
  TimePoint FreeAt(const std::string& who) const;
  // When the next turn of somebody is due.
  TimePoint NextTurn() const;
  TimePoint NextOfDaemon(const Daemon& daemon) const;
  TimePoint NextOfManager() const;

  VirtualClock clock_;
  ControlNetwork network_;
  const VirtualClusterOptions options_;
  std::map<std::string, Daemon> daemons_;  // by name; those that run
  bool changed_ = false;                   // something has come for the tasks
  TimePoint manager_free_at_{};
  // What the manager does beside serving.
  ReconnectMeans reconnect_means_;  // of the present manager
  uint64_t manager_id_ = 0;         // of the present one; 0: nobody asks the next one for KV
  Task<Connected> connecting_;
  Task<Reconnected> reconnecting_;
  Task<FoundNodes> looking_;
  bool reconnects_ = false, looks_ = false;  // those run
  std::deque<EngineCore::Event> events_;
  TimePoint next_turn_{};  // of the engine
  Status failure_;
  std::unique_ptr<EngineCore> core_;
  ControlNetwork front_network_;
  std::optional<FrontDoor> front_door_;
  std::optional<Front> front_;  // goes first
};

}  // namespace lamina::testing
