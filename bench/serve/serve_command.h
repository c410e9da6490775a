// `lamina bench serve`: a load generator for any OpenAI-compatible server (docs/bench-serve.md).
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

// Adds the subcommand to `app`. It exits with kExitFailure if nothing could be measured, or if no
// request was answered.
void RegisterBenchServe(CLI::App& app);

}  // namespace lamina
