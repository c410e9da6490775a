// `lamina bench dollar`.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

// Adds the subcommand. It exits with kExitFailure if no point could be measured.
void RegisterBenchDollar(CLI::App& app);

}  // namespace lamina
