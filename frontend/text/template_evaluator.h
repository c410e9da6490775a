// Renders a parsed chat template.
#pragma once

#include <ctime>
#include <string>

#include "base/status.h"
#include "frontend/text/template_ast.h"
#include "frontend/text/template_value.h"

namespace lamina::chat {

struct RenderLimits {
  // Statements and expressions evaluated, and the work of those by its size (see Meter): far beyond any real conversation, about a second
  // of work.
  int64_t max_steps = 2'000'000;
  size_t max_output_bytes = size_t{32} << 20;  // also of any one string that is put together on the way
  std::time_t now = std::time(nullptr);        // for strftime_now()
};

// kInvalidArgument: raise_exception() was called (its message), or "line N: ..."; kUnimplemented names what is not supported; kOutOfSpace:
// over a limit.
Result<std::string> Render(const Block& block, Dict globals, const RenderLimits& limits);

}  // namespace lamina::chat
