// `lamina bench grammar`: what constrained output costs: compiling a constraint, once for each
// request, and finding the tokens that may follow, once for each token.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

// Adds the subcommand to `app`. A run that fails exits with kExitFailure.
void RegisterBenchGrammar(CLI::App& app);

}  // namespace lamina
