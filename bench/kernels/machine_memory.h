// Whether what a benchmark is asked to fill fits into this machine. An operating system gives away
// memory that it does not have, and ends the program that uses it.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace lamina {

// kOutOfSpace, with both numbers, if `bytes` for `what` are more than half of this machine's
// memory.
Status CheckFits(double bytes, const std::string& what);

}  // namespace lamina
