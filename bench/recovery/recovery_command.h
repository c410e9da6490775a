// `lamina bench recovery`: what it costs the streams of a cluster when its nodes fail
// (docs/bench-recovery.md).
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

// Adds the subcommand to `app`. A run that fails exits with kExitFailure; requests that fail in it
// are figures.
void RegisterRecovery(CLI::App& app);

}  // namespace lamina
