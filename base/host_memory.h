// How much memory this machine has left, for whoever is about to take a lot of it: Linux promises
// more than there is, and ends a process that takes it at its word.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace lamina {

// The bytes that programs can take without swapping, as the kernel estimates it (MemAvailable in
// /proc/meminfo). The largest number if the kernel does not say. A container's own limit is not
// looked at.
int64_t AvailableHostBytes();

// kOutOfSpace, with both figures, if `bytes` are more than AvailableHostBytes. `what` needs them:
// "the values of 4096 rows".
Status CheckHostMemory(int64_t bytes, const std::string& what);

// a x b, neither of which is negative; the largest number if the product is larger.
int64_t SaturatedProduct(int64_t a, int64_t b);

}  // namespace lamina
