// `lamina simulate`: a cluster in virtual time.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

// Adds the subcommand to `lamina bench`; its callback sets `exit_status` to 1 on failure.
void RegisterSimulate(CLI::App& app, int& exit_status);

}  // namespace lamina
