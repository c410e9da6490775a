// Whether what a benchmark is told to fill fits here. A system gives away memory that it does not
// have, and ends the program that uses it.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace lamina {

// kOutOfSpace if `bytes` for `what` are more than half of this machine's memory; says both.
Status CheckFits(double bytes, const std::string& what);

}  // namespace lamina
