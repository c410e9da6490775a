// A regular expression of a tokenizer.json, compiled with PCRE2.
//
// Patterns come from files and texts from clients: what they take together is bounded for each
// text, and what takes longer is an error.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/time_budget.h"

namespace lamina {

// Thread: any; immutable.
class Regex {
 public:
  ~Regex();

  // kInvalidArgument: not a regular expression; kUnimplemented: see TranslateOniguruma.
  static Result<std::unique_ptr<Regex>> Compile(std::string_view pattern);

  // One that finds `text` itself.
  static Result<std::unique_ptr<Regex>> Literal(std::string_view text);

  // Calls visit(begin, end) for each match, from left to right, never overlapping; an empty match
  // directly behind another one does not count. Errors as TimeBudget; kOutOfSpace: one match takes
  // too much; the rest of the text was not searched. REQUIRES: valid UTF-8.
  Status ForEachMatch(std::string_view text, const TimeBudget& budget,
                      const std::function<void(size_t begin, size_t end)>& visit) const;

  // `text` with `with` in the place of each match. Errors as ForEachMatch; kOutOfSpace: that has
  // more than `max_bytes` bytes.
  Result<std::string> ReplaceAll(std::string_view text, std::string_view with, size_t max_bytes,
                                 const TimeBudget& budget) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  static Result<std::unique_ptr<Regex>> CompilePcre(const std::string& pattern,
                                                    uint32_t extra_options);
  std::unique_ptr<Code> code_;
};

}  // namespace lamina
