// fake_daemon.py under the names of the lamina programs.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/paths.h"

namespace lamina {

inline void MakeFakePrograms(const std::string& bin_dir) {
  std::filesystem::create_directories(bin_dir);
  for (const char* name : {"lamina", "lamina-memory-node", "lamina-compute-node"}) {
    std::filesystem::create_symlink(SourcePath("/tests/cli/fake_daemon.py"), bin_dir + "/" + name);
  }
}

inline void WriteProgram(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace lamina
