// `lamina bench record`: measures how long steps of a cluster take, by what they compute and by how
// much of the weights lies outside of memory, for the choice of the latter by latency objectives.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

// Adds the subcommand to `app`. A run that fails exits with kExitFailure.
void RegisterRecord(CLI::App& app);

}  // namespace lamina
