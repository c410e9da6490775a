// A whole cluster on one thread in virtual time: the engine's core, the manager's connections, and
// the daemons of compute and memory nodes, which take turns. Nobody waits: when nobody has anything
// to do, the time goes on to when somebody has. The model is really computed and messages of the
// data path really pass, so a run is a function of its input.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/turns.h"
#include "compute_node/compute_node.h"
#include "manager/cluster_executor.h"
#include "manager/engine_core.h"
#include "memory_node/memory_node.h"
#include "tests/support/control_network.h"
#include "tests/support/serving.h"
#include "tests/support/virtual_clock.h"

namespace lamina::testing {

// REQUIRES: there is one at a time. Thread: owner, and no other one reads the clock.
class VirtualCluster {
 public:
  // Starts the nodes and begins to connect them. The data path goes over the loopback fabric,
  // whatever the deployment says.
  static Result<std::unique_ptr<VirtualCluster>> Create(const Deployment& deployment);
  ~VirtualCluster();

  TimePoint now() const { return Clock::now(); }

  // Takes turns until `done`, which is asked after each round; returns false if `patience` is over
  // before.
  bool RunUntil(const std::function<bool()>& done, Clock::duration patience);

  // Whether the nodes were connected once, and why they could not be.
  bool serves() const { return core_ != nullptr; }
  const Status& failure() const { return failure_; }

  // REQUIRES of these: serves().
  Result<RequestId> Submit(GenerateRequest request, Engine::Sink sink);
  EngineStatus status() const { return core_->status(Clock::now()); }

  // The node's process is gone: nobody hears of it but by the ends of its connections.
  void Kill(const std::string& name);
  // Its daemon is started again.
  Status Start(const std::string& name);
  // The node's process does not run until it is resumed; what is sent to it waits.
  void Pause(const std::string& name) { paused_.insert(name); }
  void Resume(const std::string& name) { paused_.erase(name); }

 private:
  using Daemon = std::variant<std::unique_ptr<ComputeNode>, std::unique_ptr<MemoryNode>>;
  using Connected = ClusterExecutor::Connected;
  VirtualCluster(ClusterConfig config, ModelConfig model);

  Result<Daemon> Open(const NodeConfig& node);
  ConnectMeans Means();
  // A turn of everybody. Returns whether anybody did something.
  bool TurnAll();
  bool TurnTasks();
  bool TurnEngine();
  void TakeConnected(Connected outcome);
  // When the next turn of somebody is due.
  TimePoint NextTurn() const;

  VirtualClock clock_;
  ControlNetwork network_;
  const ClusterConfig config_;
  const ModelConfig model_;
  std::map<std::string, Daemon> daemons_;  // by name; those that run
  std::set<std::string> paused_;
  bool changed_ = false;  // something has come for the tasks
  // What the manager does beside serving.
  const ReconnectMeans reconnect_means_;
  Task<Connected> connecting_;
  Task<Reconnected> reconnecting_;
  Task<std::set<NodeId>> looking_;
  std::deque<EngineCore::Event> events_;
  TimePoint next_turn_{};  // of the engine
  Status failure_;
  std::unique_ptr<EngineCore> core_;
};

}  // namespace lamina::testing
