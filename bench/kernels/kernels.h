// `lamina bench kernels`: decode attention and linear layers against the limits of this machine,
// which are measured in the same run, in turn, and linear layers against OpenBLAS on fp32 weights
// too.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

void RegisterKernels(CLI::App& app);

}  // namespace lamina
