// `lamina cluster up`, `down` and `status`: the processes of a cluster on this machine and, over
// ssh, on others.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "manager/cluster_config.h"

namespace lamina {

struct ClusterOpsOptions {
  std::string config_path;   // absolute; the manager reads it again
  std::string bin_dir;       // where the lamina programs stand
  bool dry_run = false;      // print the commands, run nothing
  bool with_manager = true;  // up: also `lamina serve --cluster`
  // Down: what runs on hosts that do not answer counts as stopped.
  bool forget_unreachable = false;
  Clock::duration grace = std::chrono::seconds(15);  // down: from SIGTERM to SIGKILL
  // Up: gives up when nothing changed for so long.
  Clock::duration no_progress = std::chrono::minutes(3);
  // Up: the user does not want to wait any longer.
  std::function<bool()> interrupted = [] { return false; };
};

// Starts every daemon, then waits until the manager serves; without the manager, until every node
// listens. What an earlier call has started and still runs stays, and only what is missing is
// started; if the manager is there, it takes nodes back by itself. One line of progress per event
// goes to `out`. Whatever goes wrong, everything started here is stopped again and the error says
// which daemon, why, and how its log ends. kTryAgain: the cluster is up already, or another `up` or
// `down` is at work. Thread: any, REQUIRES: config.controller_host is this machine.
Status ClusterUp(const ClusterConfig& config, const ClusterOpsOptions& options, std::ostream& out);

// Stops exactly the processes that ClusterUp recorded and that are still the same processes: the
// manager first. Nothing to stop is success. What cannot be stopped (its host does not answer)
// stays recorded unless options.forget_unreachable, and the error names it.
Status ClusterDown(const ClusterConfig& config, const ClusterOpsOptions& options,
                   std::ostream& out);

// Prints a table, or with `json` one JSON document, of what the manager says; if it is not
// reachable, which recorded processes run. True if the cluster serves.
bool ClusterStatus(const ClusterConfig& config, bool json, std::ostream& out);

}  // namespace lamina
