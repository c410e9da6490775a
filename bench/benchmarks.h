// `lamina bench`: the command whose subcommands measure.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

// Adds "bench" with everything that it can measure.
void RegisterBench(CLI::App& app);

}  // namespace lamina
