// The compute nodes that wait for the place of one that is lost: connected, with the weights
// loaded, so that they can take it at once.
#pragma once

#include <list>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/turns.h"
#include "manager/cluster_config.h"
#include "manager/connecting_nodes.h"
#include "manager/engine.h"
#include "manager/node_outages.h"
#include "model/model_config.h"

namespace lamina {

// Where compute nodes share the model a standby has the part of one of them: the first standby that
// of the first compute node, and so on. If it takes another's place it loads that part then.
class Standbys {
 public:
  // `config`: as FillPlaces gives it.
  Standbys(const ClusterConfig& config, const ModelConfig& model, const ConnectMeans& means);

  // Does what is due; waits for nobody. Returns when it is to be called next. Thread: one at a
  // time.
  TimePoint Turn(TimePoint now);

  // See StepExecutor::standbys. Thread: any.
  std::vector<NodeStatus> nodes();
  bool any_ready();  // thread: any

 private:
  struct Standby {
    Standby(const ClusterConfig& cluster, const NodeConfig& daemon, NodeId place);
    const NodeId place;
    const ClusterConfig config;  // with it in `place`
    NodeStatus status;           // changed by Turn, under mutex_
    Retries retries{RetryOptions{}};
    Task<Status> ready;  // runs while it is ready, or about to be
  };
  void Set(Standby& standby, NodeState state, std::string detail);

  const ModelConfig model_;
  const ConnectMeans means_;
  Mutex mutex_;
  std::list<Standby> standbys_;
};

}  // namespace lamina
