// How nodes without a session are asked whether they could serve: those that are lost, and
// standbys.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "base/turns.h"
#include "manager/cluster_config.h"
#include "manager/connecting_nodes.h"
#include "manager/reconnect.h"
#include "model/model_config.h"

namespace lamina {

// Which of the lost nodes could serve again: LookForNodes says more. REQUIRES of both: what is
// handed over by reference outlives the procedure.
Procedure<FoundNodes> FindNodes(Turns& turns, const ClusterConfig& config, const ModelConfig& model,
                                std::map<NodeId, std::string> lost, TimePoint until,
                                ConnectMeans means);

// Has the compute node in `place` of `config` load its weights, and stays connected to it until it
// is lost: returns why. `on_ready` is called when the weights are there.
Procedure<Status> KeepReady(Turns& turns, const ClusterConfig& config, const ModelConfig& model,
                            NodeId place, ConnectMeans means, std::function<void()> on_ready);

}  // namespace lamina
