// How much memory this machine has left, for whoever is about to take a lot of it: Linux promises
// more than there is, and ends a process that takes it at its word.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace lamina {

// The bytes that this process can take without swapping: as the kernel estimates it for the whole
// machine (MemAvailable in /proc/meminfo), or what is left of the limit of its control group or
// container, if that is less. The largest number if the kernel does not say.
int64_t AvailableHostBytes();

// What is left of the limits of the memory control groups that `memberships` names, a text as in
// /proc/self/cgroup, and of those around them. `mount` is where the kernel shows the groups,
// usually /sys/fs/cgroup. Files that are read anew under pressure do not count as taken. The
// largest number if there is no limit. Both versions of control groups are understood.
int64_t AvailableGroupBytes(const std::string& mount, const std::string& memberships);

// kOutOfSpace, with both figures, if `bytes` are more than AvailableHostBytes. `what` needs them:
// "the values of 4096 rows".
Status CheckHostMemory(int64_t bytes, const std::string& what);

// a x b, neither of which is negative; the largest number if the product is larger.
int64_t SaturatedProduct(int64_t a, int64_t b);

}  // namespace lamina
