// `lamina bench dollar`: compares ways to serve a model by tokens per dollar
// (docs/bench-dollar.md).
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

// Adds the subcommand to `app`. It exits with kExitFailure if no point could be measured, and
// with kExitInterrupted if a signal ended the sweep early.
void RegisterBenchDollar(CLI::App& app);

}  // namespace lamina
