// What nodes are told when they are configured.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "manager/node_connections.h"
#include "manager/reconnect.h"
#include "model/model_config.h"
#include "wire/session_messages.h"

namespace lamina {

// Borrows connections and model. Errors are those of the configuration: a fabric that there is not.
class ClusterRequests {
 public:
  using Node = NodeConnections::Node;

  // `manager_id`: ConfigureMemory::manager_id.
  ClusterRequests(const NodeConnections& nodes, const ModelConfig& model, HeldKv held,
                  uint64_t manager_id);

  // What compute nodes are to show to memory nodes; before, nothing.
  Status DrawSessionToken();

  Result<ConfigureMemory> Memory(const Node& node) const;
  // REQUIRES: a compute node; memory nodes that it is to reach are configured.
  Result<ConfigureCompute> Compute(const Node& node) const;
  // REQUIRES: all compute nodes are configured.
  ConnectCompute Join() const;

 private:
  // What both kinds of nodes are told, for a model whose heads one node has all.
  Status Fill(const Node& node, ConfigureNode& request) const;

  const NodeConnections& nodes_;
  const ModelConfig& model_;
  const HeldKv held_;
  const uint64_t manager_id_;
  std::string session_token_;
};

}  // namespace lamina
