// `lamina bench transport`: latency and bandwidth of every fabric between two processes of this
// machine, and in the same run, in turn, those of a program that does the same with nothing around
// it (transport_reference.h, socket_reference.h).
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

// Adds the subcommand to `app`, and the hidden one that the peer's process runs. A run that fails
// exits with kExitFailure.
void RegisterTransport(CLI::App& app);

}  // namespace lamina
