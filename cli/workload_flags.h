// The command line of workloads: one set of options for every command that serves one, spelled as
// those of `vllm bench serve` where it has them.
#pragma once

#include <CLI/CLI.hpp>

#include "plan/workload/workload.h"

namespace lamina {

// Adds "--dataset-name" and so on, each also an environment variable. `options` outlives `command`.
void AddWorkloadFlags(CLI::App& command, WorkloadOptions& options);

}  // namespace lamina
