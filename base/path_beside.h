// Paths that a file names.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace lamina {

// `path` as the file at `file` means it: a relative one starts at the file's folder. The result is
// absolute, unless the current folder cannot be read.
inline std::string PathBeside(const std::string& file, const std::string& path) {
  std::error_code ignored;
  return (std::filesystem::absolute(file, ignored).parent_path() / path)
      .lexically_normal()
      .string();
}

}  // namespace lamina
