// The alphabet in which byte-level vocabularies are spelled (GPT-2): each byte is one printable
// character, U+0020 is written U+0120.
#pragma once

#include <string>
#include <string_view>

namespace lamina {

// The character of a byte, as UTF-8.
std::string SpellByte(unsigned char byte);

// The bytes that `spelled` stands for. False, and `bytes` unchanged, if a character of it is not in
// the alphabet.
bool ReadSpelledBytes(std::string_view spelled, std::string& bytes);

}  // namespace lamina
