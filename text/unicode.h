// What tokenizers ask about Unicode characters, answered by ICU.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace lamina {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// REQUIRES of all that do not say otherwise: `text` is valid UTF-8.

// kOutOfSpace if ICU has no memory for it.
Result<std::string> Normalized(std::string_view text, NormalForm form);

// Character by character, without regard to what stands around it: no final sigma.
std::string Lowercase(std::string_view text);

// Number of bytes at the beginning or end of `text` that are white space (the property
// White_Space).
size_t LeadingSpaceBytes(std::string_view text);
size_t TrailingSpaceBytes(std::string_view text);

// Whether the first character is one for which Python's str.isspace() is true: white space, and the
// separators U+001C to U+001F. Any bytes may follow it or stand in its place.
bool StartsWithPythonSpace(std::string_view text);

// Whether the first or last character is a word character: \w as Unicode's annex on regular
// expressions (UTS 18, annex C) defines it.
bool StartsWithWord(std::string_view text);
bool EndsWithWord(std::string_view text);

}  // namespace lamina
