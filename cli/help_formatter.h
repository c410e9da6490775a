// How --help says what an option takes: "INT 0 to 1024 (default: 0)", where CLI11 would say
// "INT:INT in [0 - 1024]=0".
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace lamina {

// For the program before it gets its commands, which take theirs from it.
std::shared_ptr<CLI::Formatter> HelpFormatter();

// The same for CLI11's description of what one option takes.
std::string PlainOptionText(std::string text);

}  // namespace lamina
