// `lamina bench kernels`: decode attention and linear layers against the limits of this machine,
// which are measured in the same run and in turn; linear layers also against OpenBLAS on fp32
// weights.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

// Adds the subcommand to `app`. A run that fails exits with kExitFailure.
void RegisterKernels(CLI::App& app);

}  // namespace lamina
