// Text files that a command reads as a whole, such as traces and descriptions of simulations. They
// may be pipes; for files of a model folder see text_file.h.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace lamina {

inline constexpr size_t kMaxYamlBytes = 16 << 20;  // room for a hundred thousand lines

// Returns the content of the file. kNotFound if it cannot be opened. kInvalidArgument if it begins
// with a zero byte, which no text does, has more than `max_bytes` (a pipe may never end), or cannot
// be read.
Result<std::string> ReadInput(const std::string& path, size_t max_bytes);

}  // namespace lamina
