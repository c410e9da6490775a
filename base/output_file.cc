#include "base/output_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace lamina {

Status WriteOutput(const std::string& path, const std::string& bytes) {
  return WriteOutput(path, [&](std::ostream& out) { out << bytes; });
}

Status WriteOutput(const std::string& path, const std::function<void(std::ostream&)>& write) {
  if (path.empty()) return OkStatus();
  errno = 0;  // streams do not promise to set it
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  write(file);
  if (file.flush()) return OkStatus();
  return InvalidArgument("cannot write " + path + ": " + std::strerror(errno));
}

Status WriteOutputs(const std::vector<OutputFile>& files) {
  std::string errors;
  for (const OutputFile& file : files) {
    const Status status = WriteOutput(file.path, file.bytes);
    if (!status.ok()) errors += (errors.empty() ? "" : "; ") + status.message();
  }
  return errors.empty() ? OkStatus() : InvalidArgument(errors);
}

Status CheckWritable(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    std::error_code ignored;
    const bool is_new = !std::filesystem::exists(path, ignored);
    // Opened for appending, which keeps the content of a file that exists.
    if (!std::ofstream(path, std::ios::binary | std::ios::app))
      return InvalidArgument("cannot write " + path);
    if (is_new) std::filesystem::remove(path, ignored);
  }
  return OkStatus();
}

}  // namespace lamina
