// Reading a small file as a whole: configurations, tokenizers, templates. It may come from a stranger's model folder.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace lamina {

// The largest tokenizer.json in use have 35 MB.
inline constexpr size_t kMaxTextFileBytes = size_t{256} << 20;

// The whole file, and never a wait: kNotFound if it is not there, cannot be read or is no regular file (a folder, a pipe, a device),
// kInvalidArgument if it has more than `max_bytes`. Each names the file.
Result<std::string> ReadTextFile(const std::string& path, size_t max_bytes = kMaxTextFileBytes);

// Opens a regular file for reading. Errors as above. The caller closes the descriptor.
struct OpenedFile {
  int fd = -1;
  size_t num_bytes = 0;
};
Result<OpenedFile> OpenRegularFile(const std::string& path);

}  // namespace lamina
