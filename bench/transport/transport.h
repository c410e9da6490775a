// `lamina bench transport`: latency and bandwidth of every fabric between two processes of this
// machine, and in the same run, in turn, those of the program that does the same with nothing
// around it (transport_reference.h, socket_reference.h).
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

// Also registers the hidden subcommand that the peer's process runs.
void RegisterTransport(CLI::App& app);

}  // namespace lamina
