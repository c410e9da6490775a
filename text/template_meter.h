// What a template may still do: a template comes with a model and may be wrong or hostile, so its
// work and its memory are bounded.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/template_value.h"
#include "text/time_budget.h"

namespace lamina::chat {

// Whoever is about to copy, search, compare or print values pays for it before, by their sizes. A
// step pays for a tenth of a microsecond and for kBytesPerStep bytes of new values, so that all
// that a template keeps is bounded together with its steps. The processor's time is looked at every
// few steps: it bounds what is charged too little. All return kOutOfSpace when it is too much,
// kTryAgain as TimeBudget. Thread: one.
class Meter {
 public:
  static constexpr size_t kBytesPerStep = 128;

  // `max_steps`: a step is about the work of evaluating one small expression. `max_text_bytes`: of
  // one text.
  Meter(int64_t max_steps, size_t max_text_bytes, std::chrono::nanoseconds max_time);

  Status Steps(size_t count);
  Status Text(size_t bytes);  // a text is read or made
  // A text that was paid for has grown to this; nothing is charged.
  Status TextFits(size_t bytes) const;
  Status Entries(size_t count);  // entries of a list are copied, or of a namespace looked at
  Status Keys(size_t count);     // so many short keys are searched
  // Everything inside values is looked at, which printed would be so long.
  Status Walk(size_t text_bytes);
  Status CopyKeys(const Dict& dict);  // the keys of a dict, or its entries, are copied
  // value.text_bytes() or depth() is asked for, which counts what a namespace has.
  Status Measure(const Value& value);

  // dict.Find(key), and dict.Set(key, value).
  Result<const Value*> Find(const Dict& dict, std::string_view key);
  Status Set(Dict& dict, std::string key, Value value);

  // value.ToText(), and value.ToJson(indent).
  Result<std::string> Print(const Value& value);
  Result<std::string> PrintJson(const Value& value, int indent);

 private:
  Status SearchKeys(size_t count, size_t key_bytes);

  int64_t steps_left_;
  size_t steps_since_look_ = 0;  // at the time
  const size_t max_text_bytes_;
  const TimeBudget time_;
};

}  // namespace lamina::chat
