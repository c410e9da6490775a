// Options as vLLM and llama.cpp call them: those that mean the same as one of lamina's are taken,
// the others are answered with what to do here.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace lamina {

// The arguments of the command line, without the program's name, with lamina's names in them.
// kInvalidArgument: an option of another program that has no counterpart; the message says what to
// do instead.
Result<std::vector<std::string>> WithOurNames(const std::vector<std::string>& arguments);

}  // namespace lamina
