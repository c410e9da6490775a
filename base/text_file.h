// Opening and reading files that may come from a stranger's model folder: nothing in it may hang or
// fill the reader.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace lamina {

// Of a configuration, a tokenizer or a template. The largest tokenizer.json in use has 35 MB.
inline constexpr size_t kMaxTextFileBytes = size_t{256} << 20;

// The whole file, without ever waiting for it. kNotFound: it is not there. kInvalidArgument:
// something is there that cannot be read, or is no regular file (a folder, a pipe, a device), or
// has more than `max_bytes`: whoever can do without the file must not take that for its absence.
// Both name the file.
Result<std::string> ReadTextFile(const std::string& path, size_t max_bytes = kMaxTextFileBytes);

// Opens a regular file for reading. Errors as above. The caller closes the descriptor.
struct OpenedFile {
  int fd = -1;
  size_t num_bytes = 0;
};
Result<OpenedFile> OpenRegularFile(const std::string& path);

}  // namespace lamina
