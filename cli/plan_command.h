// `lamina plan`: which devices to buy or rent for a model and a workload, and when not to
// disaggregate.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

void RegisterPlan(CLI::App& app, int& exit_status);

}  // namespace lamina
