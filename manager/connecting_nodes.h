// Nodes of a cluster that are being reached and configured: a single try. Who tries again, and with
// whom, is open_nodes.h.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "base/turns.h"
#include "manager/cluster_config.h"
#include "manager/cluster_requests.h"
#include "manager/node_connections.h"
#include "manager/reconnect.h"
#include "model/model_config.h"
#include "splitter/topology.h"
#include "transport/control_channel.h"
#include "transport/control_connecting.h"
#include "wire/session_messages.h"

namespace lamina {

inline constexpr auto kQuietWait = std::chrono::seconds(2);  // for a daemon that is just starting

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

// Procedures borrow the object. Thread: owner.
class ConnectingNodes {
 public:
  using Node = NodeConnections::Node;

  // `known` is of nodes of `view`. After `until` it waits for nobody but nodes that are loading
  // weights. Borrows the model.
  ConnectingNodes(const ClusterConfig& config, const ModelConfig& model, View view,
                  const KnownNodes& known, TimePoint until, ConnectMeans means);

  // Reaches all nodes that are not left out within `reach_patience`, and none that was waited for
  // less than kQuietWait is given up; configures memory nodes within `patience`, then compute
  // nodes, and joins those. Errors name the node.
  Procedure<Status> Open(Turns& turns, Clock::duration reach_patience, Clock::duration patience);
  // Ok if the node answers and could serve; a compute node has loaded its weights then. REQUIRES:
  // Open is not called.
  Procedure<Status> AskIfFree(Turns& turns, Node& node);

  // Why the nodes that are not left out cannot be enough; ok: they may be.
  Status TooFewLeft() const;
  // The following REQUIRE that Open failed. Nodes that were lost meanwhile, with the reasons; `why`
  // is that of Open.
  Procedure<std::map<NodeId, std::string>> NewlyLost(Turns& turns, Status why);
  // Whether all nodes live, but compute nodes do not reach each other, and nobody else has their
  // parts of the model.
  bool HasCut() const;
  // The compute node that could not be reached, or that was lost; "" if that was not what failed.
  std::string MissingComputeNode() const;

  TimePoint until() const { return until_; }
  NodeConnections& nodes() { return *nodes_; }
  // REQUIRES: nothing else is called any more.
  std::unique_ptr<NodeConnections> Take() { return std::move(nodes_); }

 private:
  Procedure<Status> ConnectNode(Turns& turns, Node& node, const ControlOptions& options,
                                TimePoint latest);
  Procedure<Result<std::unique_ptr<ControlConnection>>> Reach(Turns& turns, const Node& node,
                                                              const ControlOptions& options,
                                                              TimePoint latest);
  Procedure<Status> ConfigureMemoryNode(Turns& turns, Node& node, TimePoint latest);
  Procedure<Status> ConfigureComputeNodes(Turns& turns);
  Procedure<Status> JoinComputeNodes(Turns& turns);
  Procedure<Status> ConfigureOnceFree(Turns& turns, Node& node, MessageType type,
                                      std::string request, Clock::duration patience);
  Procedure<Status> AwaitConfigured(Turns& turns, Node& node, Clock::duration patience);
  TimePoint Within(TimePoint now, Clock::duration patience) const {
    return std::min(until_, now + patience);
  }
  // When the next turn of a wait that ends at `latest` is due.
  TimePoint NextLook(TimePoint now, TimePoint latest) const;
  Status CheckElastic(const Node& node) const;
  Result<ControlOptions> control_options() const;

  const ConnectMeans means_;
  const std::map<NodeId, std::string> left_out_;  // with the reasons
  TimePoint until_;
  std::unique_ptr<NodeConnections> nodes_;
  ClusterRequests requests_;
  const Node* failed_ = nullptr;  // the one that is being configured; when Open has failed, where
};

}  // namespace lamina
