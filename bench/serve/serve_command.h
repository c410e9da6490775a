// `lamina bench serve`.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

// Adds the subcommand. It exits with kExitFailure if nothing could be measured or no request was
// answered.
void RegisterBenchServe(CLI::App& app);

}  // namespace lamina
