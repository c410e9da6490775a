// Text files that a benchmark reads as a whole.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace lamina {

inline constexpr size_t kMaxYamlBytes = 16 << 20;  // a hundred thousand lines

// kNotFound: it cannot be opened. kInvalidArgument: it begins with a zero as no text does, has more
// bytes, as a pipe that never ends, or cannot be read.
Result<std::string> ReadInput(const std::string& path, size_t max_bytes);

}  // namespace lamina
