// What the manager says about the cluster, and how people read it.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/cluster_state.h"
#include "manager/cluster_config.h"

namespace lamina {

// "http://127.0.0.1:8000".
std::string ManagerUrl(const ClusterConfig& config);

struct ManagerAnswer {
  // GET /cluster/status was answered with JSON, by a manager that has no nodes yet or those of the
  // YAML.
  bool reachable = false;
  bool healthy = false;  // GET /health is 200
  bool serving = false;
  std::string detail;       // why it does not serve or is not reachable
  std::string status_json;  // as the manager sent it, with a line feed at the end
};
// Sends the API key LAMINA_API_KEY, or of the file LAMINA_API_KEY_FILE, of the YAML's defaults.env,
// else of the environment.
ManagerAnswer AskManager(const ClusterConfig& config);

// A table from GET /cluster/status: {serving, detail, nodes[{name, role, address, state, detail,
// transport, capacity_tokens, used_tokens, num_sequences, paths[{from, fabric, through,
// refused}]}], scheduler{num_running, num_waiting, num_preemptions}}. Missing fields stay empty.
std::string StatusTable(const std::string& status_json);

// For a manager that is not reachable: why, and which of the recorded processes run. As JSON:
// {serving: false, detail, processes[{name, host, pid, running, log}]}.
std::string ProcessReport(const std::string& detail, const std::vector<DaemonRecord>& daemons,
                          const Result<std::vector<bool>>& running, bool json);

}  // namespace lamina
