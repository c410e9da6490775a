// A regular expression of a tokenizer.json, compiled with PCRE2.
//
// Patterns come from files: a pattern that backtracks without end stops at a limit. Its tokenizer then takes the rest of the text in one
// piece.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace lamina {

// Thread: any; immutable.
class Regex {
 public:
  ~Regex();

  // kInvalidArgument: not a regular expression; kUnimplemented: see TranslateOniguruma.
  static Result<std::unique_ptr<Regex>> Compile(std::string_view pattern);

  // One that finds `text` itself.
  static Result<std::unique_ptr<Regex>> Literal(std::string_view text);

  // Calls visit(begin, end) for each match, from left to right, never overlapping; an empty match directly behind another one does not
  // count. REQUIRES: valid UTF-8.
  void ForEachMatch(std::string_view text, const std::function<void(size_t begin, size_t end)>& visit) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  static Result<std::unique_ptr<Regex>> CompilePcre(const std::string& pattern, uint32_t extra_options);
  std::unique_ptr<Code> code_;
};

}  // namespace lamina
