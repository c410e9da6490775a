// `lamina bench dollar`.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

// Adds the subcommand; its callback runs it and sets `exit_status`: 1 if no point could be
// measured.
void RegisterBenchDollar(CLI::App& app, int& exit_status);

}  // namespace lamina
