// How a cluster's nodes are connected: at first, and without those that are lost. Standbys take the
// places of compute nodes that are not there.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "base/turns.h"
#include "manager/cluster_config.h"
#include "manager/connecting_nodes.h"
#include "manager/node_connections.h"
#include "manager/reconnect.h"
#include "model/model_config.h"

namespace lamina {

using OpenedNodes = Result<std::unique_ptr<NodeConnections>>;

// As ClusterExecutor's ConnectByTurns and ConnectWithoutByTurns say. REQUIRES: what is handed over
// by reference outlives the procedure.
Procedure<OpenedNodes> OpenNodes(Turns& turns, const ClusterConfig& config,
                                 const ModelConfig& model, ConnectMeans means);
Procedure<OpenedNodes> OpenNodesWithout(Turns& turns, const ClusterConfig& config,
                                        const ModelConfig& model, KnownNodes known, TimePoint until,
                                        ConnectMeans means);

}  // namespace lamina
