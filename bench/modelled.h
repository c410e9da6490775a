// `lamina bench modelled`: decoding on a cluster of modelled devices, against the sum of its
// devices' times. What is missing to 1 is what lamina, its transports and this machine add.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

void RegisterModelled(CLI::App& app);

}  // namespace lamina
