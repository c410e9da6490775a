// `lamina bench throughput`: tokens per second of a local cluster, held against the same engine in
// one process without offloading, measured in the same run. The ratio is what disaggregation costs.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

// Adds the subcommand to `app`. A run that fails exits with kExitFailure.
void RegisterThroughput(CLI::App& app);

}  // namespace lamina
