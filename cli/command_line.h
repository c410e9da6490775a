// What was typed, for reports, and the exit status of a command that was interrupted.
#pragma once

#include <string>

namespace lamina {

// The command line of this process, quoted as a shell would take it. In place of an API key there
// is the word KEY.
std::string CommandLine();

// The status that shells report for a command that SIGINT has ended.
inline constexpr int kExitInterrupted = 130;

}  // namespace lamina
