// Which daemon has which compute node's place. A place is a compute node's part in the cluster: its
// id, its stage and its rank. It outlives its daemon: when that is lost a standby takes the place,
// and the daemon, once it is back, is a standby itself.
#pragma once

#include <map>
#include <set>
#include <string>

#include "base/ids.h"
#include "manager/cluster_config.h"

namespace lamina {

// Names of daemons by the places that they have.
using ComputePlaces = std::map<NodeId, std::string>;

struct FilledPlaces {
  // The cluster with those in `nodes` that have the places. `standbys` are all others, also those
  // that are gone, as they may come back.
  ClusterConfig config;
  std::set<NodeId> empty;  // places that nobody is left for; `nodes` has who had them last
};

// Fills the places of `config`, which is the cluster as its file has it. Who had a place before
// keeps it, unless it is among `gone`; before, places that are not in `before` were had by who
// stands there in the file. One that is free goes to the first who has none of: the one of the
// file, the standbys in their order, others of the file.
FilledPlaces FillPlaces(const ClusterConfig& config, const ComputePlaces& before,
                        const std::set<std::string>& gone);

}  // namespace lamina
