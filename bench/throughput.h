// `lamina bench throughput`: tokens per second of a local cluster, and in the same run of the same
// engine in one process without offloading, so that what disaggregation costs is a ratio on record.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

void RegisterThroughput(CLI::App& app);

}  // namespace lamina
