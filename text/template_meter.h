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
// few steps: it bounds what is charged too little. All return kOutOfSpace when it is too much, and
// kTryAgain when the thread's StopScope was told to stop. Thread: one.
class Meter {
 public:
  static constexpr size_t kBytesPerStep = 128;

  // A step is about the work of evaluating one small expression. No single text may have more than
  // `max_text_bytes`.
  Meter(int64_t max_steps, size_t max_text_bytes, std::chrono::nanoseconds max_time);

  Status Steps(size_t count);
  // A text of so many bytes is read or made.
  Status Text(size_t bytes);
  // A text that was paid for has grown to this. Nothing is charged.
  Status TextFits(size_t bytes) const;
  // So many entries of a list are copied, or of a namespace looked at.
  Status Entries(size_t count);
  // So many short keys are searched.
  Status Keys(size_t count);
  // Everything inside of values is looked at which, printed, would be so long.
  Status Walk(size_t text_bytes);
  // The keys of a dict, or its entries, are copied.
  Status CopyKeys(const Dict& dict);
  // value.text_bytes() or value.depth() is asked for, which counts what a namespace has.
  Status Measure(const Value& value);

  // Pay for dict.Find(key) and dict.Set(key, value), and do it.
  Result<const Value*> Find(const Dict& dict, std::string_view key);
  Status Set(Dict& dict, std::string key, Value value);

  // Pay for value.ToText() and value.ToJson(indent), and do it.
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
