// `lamina bench dollar`: compares ways to serve a model by tokens per dollar
// (docs/bench-dollar.md).
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

// Adds the subcommand to `app`. Its callback runs it and sets `exit_status`: 1 if no point could be
// measured, kExitInterrupted if a signal ended the sweep early.
void RegisterBenchDollar(CLI::App& app, int& exit_status);

}  // namespace lamina
