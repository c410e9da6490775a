// `lamina bench profile`: what a model's layers take on this machine, as a device of the catalog:
// for `lamina simulate` of nodes whose device is cpu, for `lamina plan`, and as a modelled device
// elsewhere.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

void RegisterProfile(CLI::App& app);

}  // namespace lamina
