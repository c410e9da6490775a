// What a template may still do: a template comes with a model and may be wrong or hostile, so its work and its memory are bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "frontend/text/template_value.h"

namespace lamina::chat {

// Whoever is about to copy, search, compare or print values pays for it before, by their sizes. All return kOutOfSpace when it is too much.
// Thread: one.
class Meter {
 public:
  // `max_steps`: a step is about the work of evaluating one small expression. `max_text_bytes`: of one text.
  Meter(int64_t max_steps, size_t max_text_bytes) : steps_left_(max_steps), max_text_bytes_(max_text_bytes) {}

  Status Steps(size_t count);
  Status Text(size_t bytes);            // a text is read or made
  Status TextFits(size_t bytes) const;  // a text that was paid for has grown to this; nothing is charged
  Status Entries(size_t count);         // entries of a list or dict are copied
  Status Keys(size_t count);            // so many keys are searched
  Status Walk(size_t text_bytes);       // everything inside values is looked at, which printed would be so long

  // value.ToText(), and value.ToJson(indent).
  Result<std::string> Print(const Value& value);
  Result<std::string> PrintJson(const Value& value, int indent);

 private:
  int64_t steps_left_;
  const size_t max_text_bytes_;
};

}  // namespace lamina::chat
