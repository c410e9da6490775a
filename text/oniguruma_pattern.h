// Regular expressions of tokenizer.json are written for Oniguruma with Ruby's syntax; PCRE2 reads
// nearly the same language.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace lamina {

// The pattern that means in PCRE2 (UTF, UCP, MULTILINE, newline is LF) what `pattern` means in
// Oniguruma: \s, \w and \h are other sets of characters there. kUnimplemented names what the two
// read differently and what is not translated: class intersections, inline options besides i, back
// references and a few more. Errors of syntax are left to PCRE2.
Result<std::string> TranslateOniguruma(std::string_view pattern);

}  // namespace lamina
