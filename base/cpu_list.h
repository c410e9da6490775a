// Lists of a host's cores, in the notation of taskset and lscpu: "0-3,8".
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace lamina {

// Returns the cores in the order of the text. kInvalidArgument if the text is no such list, names a
// core twice, or has a number that no host has (CPU_SETSIZE or more).
Result<std::vector<int>> ParseCpuList(const std::string& text);

// Makes this thread, and the threads that it starts from now on, run on the cores of the list only.
// `num_threads` is the number of kernel threads of the calling daemon, 0 for one per core.
// kInvalidArgument if ParseCpuList returns it or there are more threads than cores; kNotFound if
// this process may not use one of the cores.
Status RunOnCpus(const std::string& list, int num_threads);

}  // namespace lamina
