// `lamina bench kernels`: decode attention and linear layers against the limits of this machine,
// which are measured in the same run and in turn; linear layers also against OpenBLAS on fp32
// weights.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

// Adds the subcommand to `app`. A run that fails sets `exit_status` to 1.
void RegisterKernels(CLI::App& app, int& exit_status);

}  // namespace lamina
