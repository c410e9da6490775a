// What strangers wrote, as a log or a message shows it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lamina {

// `text` as one line of UTF-8 that looks like what it is and gives no orders to a terminal. Spelled
// out are control characters and other ends of lines ("\n", "\x1b", "\u2028"), what changes the
// direction of writing or is not seen
// ("\u202e", "\u200b"), and bytes that belong to no character ("\xff").
std::string Printable(std::string_view text);

// Of an error that quotes what a stranger sent.
inline constexpr size_t kBriefBytes = 1000;

// Printable(text), or whole characters of its beginning, at most `max_bytes` bytes, and "...".
std::string Briefly(std::string_view text, size_t max_bytes = kBriefBytes);

}  // namespace lamina
