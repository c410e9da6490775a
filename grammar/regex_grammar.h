// Regular expressions as parts of a grammar: the subset on which Python's `re` and ECMA 262 agree.
//
// Literals, `.` (all but line ends), classes, \d \w \s (of ASCII) and \D \W \S, escapes of
// characters (\n \t \r \f \v \0 \xHH \uHHHH \u{H}), groups, alternatives, the quantifiers
// * + ? {n} {n,} {n,m} and their lazy forms. `^` and `$` stand at the ends of an alternative that
// is in no group. What looks around or back is refused, and so are flags and \b, \p, \B.
#pragma once

#include <string_view>

#include "base/status.h"
#include "grammar/grammar_builder.h"

namespace lamina {

struct RegexOptions {
  TextForm form = TextForm::kPlain;
  // The text only has to hold a match. If not, it has to be one from end to end.
  bool search = false;
};

// kInvalidArgument: what is wrong or not supported, with its place in the pattern.
Result<Fragment> AddRegex(std::string_view pattern, const RegexOptions& options,
                          GrammarBuilder& builder);

// All characters that a text may hold: Normalized.
std::span<const CodePointRange> AllCodePoints();

}  // namespace lamina
