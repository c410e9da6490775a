// The daemons of a cluster as processes on hosts: start, find and stop them by running the scripts of cluster_commands.h there.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/cluster_config.h"
#include "base/status.h"
#include "frontend/cluster_commands.h"
#include "frontend/cluster_state.h"

namespace lamina {

// The error names host and cause; nothing runs then.
Result<DaemonRecord> StartDaemon(const ClusterConfig& config, const DaemonCommand& command, const std::string& bin_dir);

// For each daemon whether it runs. Asks each host once; the error names the host that did not answer.
Result<std::vector<bool>> FindDaemons(const ClusterConfig& config, const std::vector<DaemonRecord>& daemons);

// Stops the daemons from the last to the first, takes each out of `state` and the file as soon as it is gone. Goes on after an error; the
// first one is returned.
Status StopDaemons(const ClusterConfig& config, Clock::duration grace, const ClusterStateFile& file, ClusterState* state,
                   std::ostream& out);

// The end of a daemon's log, or why it cannot be read.
std::string TailOfLog(const ClusterConfig& config, const DaemonRecord& daemon);

// As StopScript wants it: whole seconds, rounded up.
int GraceSeconds(Clock::duration grace);

}  // namespace lamina
