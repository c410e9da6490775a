// How an engine gets its nodes back after some were lost: procedures that go on by turns
// (base/turns.h), so that whoever runs them goes on with everything else meanwhile.
//
// Each is told `on_change`, which it calls when a turn is worth while before it is due, from any
// thread, as long as the procedure or an executor that it made lives.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/turns.h"
#include "manager/compute_places.h"
#include "manager/step_executor.h"
#include "scheduler/scheduler.h"

namespace lamina {

using OnChange = std::function<void()>;
using Reconnected = Result<std::unique_ptr<StepExecutor>>;

// The KV that memory nodes keep for an engine while they are connected anew.
struct HeldKv {
  std::map<NodeId, uint64_t> ids;                         // by memory node: NodeKv::id
  std::map<NodeId, std::vector<HeldTokens>> tokens = {};  // as Scheduler::Held
  // There is none yet, and memory nodes are asked for what a manager that is gone left.
  bool takes_over = false;
};

// What an engine knows of nodes that are to be connected anew.
struct KnownNodes {
  std::map<NodeId, std::string> lost;  // with the reasons
  HeldKv held = {};
  // Who had compute nodes' places when they were last connected, also places of `lost`, or who was
  // found for them since.
  ComputePlaces places = {};
  std::set<std::string> lost_standbys = {};
};

// Makes an executor of the nodes that are left and of standbys in the places of compute nodes that
// are lost, after the executor of before is gone. Compute nodes have forgotten everything, and so
// have memory nodes that do not have the KV that is held (StepExecutor::kv says which). The new
// executor numbers its nodes as the one before and tells more that it finds lost. kPeerLost if too
// little is left. After `until` it waits for nobody but nodes that are loading weights. Outlives
// its procedures.
using Reconnect = std::function<Procedure<Reconnected>(Turns& turns, KnownNodes known,
                                                       TimePoint until, OnChange on_change)>;

// Nodes that could serve again, with the names of their daemons: in a compute node's place that may
// be another one than before.
using FoundNodes = std::map<NodeId, std::string>;

// Which of these nodes, given with the reasons why they are lost, could serve again: they answer
// and have no session with anybody; a compute node has the weights by then, so this may take long.
// Of memory nodes that hold the same tokens all or none. `until`: as Reconnect. Outlives its
// procedures.
using LookForNodes = std::function<Procedure<FoundNodes>(
    Turns& turns, std::map<NodeId, std::string> lost, TimePoint until, OnChange on_change)>;

// Destroys connections to nodes or an executor that has some, and is over when they are gone. The
// pointer is the only one, and is shared only to be of any type. Null: nothing to do.
using EndConnections = Procedure<Status> (*)(Turns& turns, std::shared_ptr<void> what,
                                             OnChange on_change);

// On a thread of its own, because connections wait until their nodes know that they are left.
Procedure<Status> EndOnAThread(Turns& turns, std::shared_ptr<void> what, OnChange on_change);
// On the spot, by callers that may wait, and for connections that do not.
Procedure<Status> EndAtOnce(Turns& turns, std::shared_ptr<void> what, OnChange on_change);

// What an engine asks for when it needs another executor.
struct ReconnectTask {
  // The executor of before, which goes first, as its sessions keep nodes busy; null if it is gone.
  std::unique_ptr<StepExecutor> before;
  KnownNodes known;                        // of those that are left out
  std::map<NodeId, std::string> doubtful;  // left out unless they are found to answer
  TimePoint until;
};

// With what such a task is done.
struct ReconnectMeans {
  Reconnect reconnect;
  LookForNodes look = nullptr;  // null: nodes in doubt are left out
  EndConnections end = EndOnAThread;
  // What there is to connect nodes that have loaded their weights until the task's time was over.
  Clock::duration after_weights = std::chrono::seconds(60);
  OnChange on_change = [] {};
};

// Does the task: ends the executor of before, asks the nodes in doubt, and connects those that are
// left. REQUIRES: `means` outlives the procedure.
Procedure<Reconnected> ReconnectByTurns(Turns& turns, ReconnectTask task,
                                        const ReconnectMeans& means);

}  // namespace lamina
