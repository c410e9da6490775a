// The daemons of a cluster as processes on hosts: start, find and stop them by running the scripts
// of cluster_commands.h there.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "cli/cluster_state.h"
#include "manager/cluster_commands.h"
#include "manager/cluster_config.h"

namespace lamina {

// Starts the daemon under the mark `start_id`. The error names host and cause; something of it may
// run nevertheless, which ResolveStarts finds.
Result<DaemonRecord> StartDaemon(const ClusterConfig& config, const DaemonCommand& command,
                                 const std::string& bin_dir, const std::string& start_id);

// A mark that no other daemon has.
std::string NewStartId();

// Asks the hosts what became of the records that may be starting, and replaces each by what runs.
// The error names the first host that did not answer; its records stay as they are.
Status ResolveStarts(const ClusterConfig& config, ClusterState* state);

// For each daemon whether it runs; false for one that may be starting. Asks each host once; the
// error names the host that did not answer.
Result<std::vector<bool>> FindDaemons(const ClusterConfig& config,
                                      const std::vector<DaemonRecord>& daemons);

struct StopOptions {
  Clock::duration grace{};          // from SIGTERM to SIGKILL
  bool forget_unreachable = false;  // daemons on hosts that do not answer count as gone
  size_t keep_first = 0;            // so many daemons of the state stay
};

// Stops the daemons from the last to the first, takes each out of `state` and the file as soon as
// it is gone. Goes on after an error, but does not ask a host again that did not answer; the first
// error is returned.
Status StopDaemons(const ClusterConfig& config, const StopOptions& options,
                   const ClusterStateFile& file, ClusterState* state, std::ostream& out);

// The end of what a daemon has written into its log since it was started last, or why it cannot be
// read.
std::string TailOfLog(const ClusterConfig& config, const DaemonRecord& daemon);

// Whole seconds, rounded up, which StopScript takes.
int GraceSeconds(Clock::duration grace);

}  // namespace lamina
