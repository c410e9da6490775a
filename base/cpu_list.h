// Cores of a host by their numbers, written as taskset and lscpu do: "0-3,8".
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace lamina {

// In the order of the text. kInvalidArgument: no such list, a core that is named twice, or a number
// that no host has.
Result<std::vector<int>> ParseCpuList(const std::string& text);

// This thread, and those that it starts from here on, run on the cores of the list only. For a
// daemon with so many kernel threads, 0: one per core. Errors as ParseCpuList; kInvalidArgument:
// more threads than cores; kNotFound: this process may not use one of the cores.
Status RunOnCpus(const std::string& list, int num_threads);

}  // namespace lamina
