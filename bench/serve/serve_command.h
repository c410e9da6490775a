// `lamina bench serve`.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

// Adds the subcommand; its callback runs it and sets `exit_status`: 1 if nothing could be measured,
// or no request was answered.
void RegisterBenchServe(CLI::App& app, int& exit_status);

}  // namespace lamina
