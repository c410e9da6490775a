// Files that a command writes, such as reports and traces. An empty path means that no file is
// wanted, and counts as written.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "base/status.h"

namespace lamina {

// Replaces the file by `bytes`, or by what `write` writes. kInvalidArgument if it cannot be
// written.
Status WriteOutput(const std::string& path, const std::string& bytes);
Status WriteOutput(const std::string& path, const std::function<void(std::ostream&)>& write);

struct OutputFile {
  std::string path, bytes;
};
// Writes all files, even if some of them cannot be written. kInvalidArgument names each of those.
Status WriteOutputs(const std::vector<OutputFile>& files);

// kInvalidArgument unless all files can be written: to be called before a long measurement rather
// than failing after it. Does not change files that exist and leaves no new one behind.
Status CheckWritable(const std::vector<std::string>& paths);

}  // namespace lamina
