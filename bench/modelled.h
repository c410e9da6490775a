// `lamina bench modelled`: decoding on a cluster of modelled devices, held against the sum of the
// devices' times. What the ratio lacks to 1 is what lamina, its transports and this machine add.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

// Adds the subcommand to `app`. A run that fails exits with kExitFailure.
void RegisterModelled(CLI::App& app);

}  // namespace lamina
