// Renders a parsed chat template.
#pragma once

#include <chrono>
#include <ctime>
#include <string>

#include "base/status.h"
#include "text/template_ast.h"
#include "text/template_value.h"

namespace lamina::chat {

struct RenderLimits {
  // Statements and expressions evaluated, and the work of those by its size (see Meter): far beyond
  // any real conversation, a few tenths of a second of work. It bounds what a template keeps as
  // well, at 128 bytes for each step: 256 MB.
  int64_t max_steps = 2'000'000;
  // Of the processor, for what counts as too few steps. All steps take about 0.3 s; the rest is for
  // slow machines.
  std::chrono::milliseconds max_time{2000};
  // Also of any one string that is put together on the way.
  size_t max_output_bytes = size_t{32} << 20;
  std::time_t now = std::time(nullptr);  // for strftime_now()
};

// Renders a template with these variables. kInvalidArgument with the template's own message if it
// calls raise_exception(), or with "line N: ..." if something in it cannot be evaluated;
// kUnimplemented names what is not supported; kOutOfSpace if it goes over a limit; kTryAgain if the
// thread's StopScope was told to stop.
Result<std::string> Render(const Block& block, Dict globals, const RenderLimits& limits);

}  // namespace lamina::chat
