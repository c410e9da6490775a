// What was typed, for reports.
#pragma once

#include <string>

namespace lamina {

// Of this process, as a shell would take it. The values of --api-key are left out.
std::string CommandLine();

}  // namespace lamina
