// Opens and reads files of model folders. Such a folder may come from anybody, so no file in it may
// make the reader wait for ever or fill its memory.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace lamina {

// Limit for configurations, tokenizers and templates. The largest tokenizer.json in use has 35 MB.
inline constexpr size_t kMaxTextFileBytes = size_t{256} << 20;

// Returns the whole file, without ever waiting for it. kNotFound if it does not exist;
// kInvalidArgument if something is there that cannot be read, is no regular file (a folder, a pipe,
// a device), or has more than `max_bytes`: whoever can do without the file must not take that for
// its absence. Both name the file.
Result<std::string> ReadTextFile(const std::string& path, size_t max_bytes = kMaxTextFileBytes);

struct OpenedFile {
  int fd = -1;  // the caller closes it
  size_t num_bytes = 0;
};
// Opens a regular file for reading. Errors as those of ReadTextFile.
Result<OpenedFile> OpenRegularFile(const std::string& path);

}  // namespace lamina
