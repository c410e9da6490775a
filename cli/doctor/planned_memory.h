// How much memory the nodes of a cluster will take on each host, and how much of it RDMA will lock.
#pragma once

#include <cstdint>
#include <string>

#include "manager/cluster_config.h"
#include "model/model_config.h"
#include "splitter/topology.h"

namespace lamina {

// Bytes of windows and buffers that a node on `host` registers with its NIC, for the node that
// needs most: the limit is each process's own. To within some kilobytes between compute and memory
// nodes, an estimate from above between compute nodes. 0 without peers. REQUIRES: ResolveConfig
// accepted `config`, and `view` is that of ViewOf (manager/resolve_config.h).
int64_t PlannedLockedBytes(const ClusterConfig& config, const ModelConfig& model, const View& view,
                           const std::string& host);

// Bytes of the KV caches and weights of the nodes on `host` that compute on its CPU. REQUIRES: as
// for PlannedLockedBytes.
int64_t PlannedBytes(const ClusterConfig& config, const ModelConfig& model,
                     const std::string& host);

}  // namespace lamina
