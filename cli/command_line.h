// What was typed, for reports, and how a command ends that was interrupted.
#pragma once

#include <string>

namespace lamina {

// Of this process, as a shell would take it. The values of --api-key are left out.
std::string CommandLine();

inline constexpr int kExitInterrupted = 130;  // as shells have it for SIGINT

}  // namespace lamina
