// UTF-8 as it arrives in pieces: token by token, not character by character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lamina {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8Prefix { kComplete, kIncomplete, kInvalid };

// What `text` (not empty) starts with: a whole well-formed character of *length bytes; the
// beginning of one that further bytes could complete; or a byte that can start none. Surrogates,
// overlong forms and values above U+10FFFF are invalid.
Utf8Prefix ClassifyUtf8(std::string_view text, size_t* length);

// What stands for bytes that belong to no character: U+FFFD for each of them, or one for as many as
// begin a character that does not go on
// ("maximal subpart": Unicode standard, 3.9; Python and Rust do that).
enum class Repair { kEachByte, kEachSubpart };

// Moves every whole character from `pending` to the end of `text`, with U+FFFD for bytes that
// belong to none. What may still be completed stays in `pending`: at most three bytes.
void TakeCompleteUtf8(std::string& pending, std::string& text, Repair repair = Repair::kEachByte);

// Does the same where nothing follows: the rest becomes U+FFFD too, and `pending` is empty
// afterwards.
void TakeAllUtf8(std::string& pending, std::string& text, Repair repair = Repair::kEachByte);

// `text`, or its beginning of at most `max_bytes` bytes of whole characters and "..."; for messages
// that quote what others wrote.
std::string Shortened(std::string_view text, size_t max_bytes);

// Number of characters (code points); an ill-formed byte counts as one.
size_t CountCodePoints(std::string_view text);

// The code point that `text` starts with, of *length bytes. REQUIRES: not empty and well-formed.
uint32_t FirstCodePoint(std::string_view text, size_t* length);

// REQUIRES: a code point, not a surrogate; anything else becomes U+FFFD.
void AppendCodePoint(uint32_t code_point, std::string& text);

// Byte offset of the character number `index`; text.size() if there are fewer.
size_t CodePointOffset(std::string_view text, size_t index);

}  // namespace lamina
