// `lamina bench profile`: measures what a model's layers take on this machine, and writes it as a
// device of the catalog: for `lamina simulate` of nodes whose device is cpu, for `lamina plan`, and
// as a modelled device elsewhere.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

// Adds the subcommand to `app`. A run that fails exits with kExitFailure.
void RegisterProfile(CLI::App& app);

}  // namespace lamina
