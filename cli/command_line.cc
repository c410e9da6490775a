#include "cli/command_line.h"

#include <fstream>

namespace lamina {

std::string CommandLine() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string line;
  bool secret = false;
  for (std::string word; std::getline(file, word, '\0');) {
    const bool plain =
        !word.empty() && word.find_first_of(" \t\n'\"\\$*?|&;<>()`#") == std::string::npos;
    if (secret) word = "KEY";
    if (word.starts_with("--api-key=")) word = "--api-key=KEY";
    secret = word == "--api-key";
    line += (line.empty() ? "" : " ") + (plain || word == "KEY" ? word : "'" + word + "'");
  }
  return line;
}

}  // namespace lamina
