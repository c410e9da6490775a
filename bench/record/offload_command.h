// `lamina bench offload`: how much of the weights may lie outside of memory while requests keep an
// objective: by the choice of `lamina serve`, by every fixed interval, and by other schedules.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

// Adds the subcommand to `app`. A run that fails exits with kExitFailure.
void RegisterOffload(CLI::App& app);

}  // namespace lamina
