// Files that a benchmark writes. An empty path is none.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "base/status.h"

namespace lamina {

// kInvalidArgument: it cannot be written.
Status WriteOutput(const std::string& path, const std::string& bytes);
Status WriteOutput(const std::string& path, const std::function<void(std::ostream&)>& write);

// Writes all of them, also when some cannot be written; the error names each of those.
struct OutputFile {
  std::string path, bytes;
};
Status WriteOutputs(const std::vector<OutputFile>& files);

// Whether all of them can be written: better known before an hour of measuring than after it.
// Leaves no file behind.
Status CheckWritable(const std::vector<std::string>& paths);

}  // namespace lamina
