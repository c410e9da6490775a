// A line on stderr that is written over and over while something takes long, if it is a terminal.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <string>

#include "base/clock.h"

namespace lamina {

// The line is gone with the object. Thread: one owner.
class ProgressLine {
 public:
  ~ProgressLine() {
    if (written_) std::cerr << "\r\033[K" << std::flush;
  }

  // Whether a line would be written now: not at once, and then five times a second.
  bool is_due() const { return is_terminal_ && Clock::now() >= next_; }
  void Show(const std::string& line) {
    if (!is_due()) return;
    next_ = Clock::now() + milliseconds(200);
    written_ = true;
    std::cerr << "\r\033[K" << line << std::flush;
  }

 private:
  const bool is_terminal_ = isatty(STDERR_FILENO) != 0;
  bool written_ = false;
  TimePoint next_ = Clock::now() + milliseconds(500);
};

}  // namespace lamina
