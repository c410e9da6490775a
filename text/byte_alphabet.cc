#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace lamina {
namespace {

// Printable Latin-1 characters stand for themselves; the others, in order, are the characters from
// U+0100 on.
struct Alphabet {
  std::array<uint16_t, 256> character = {};
  std::array<int16_t, 0x144> byte = {};  // -1: not in the alphabet

  constexpr Alphabet() {
    byte.fill(-1);
    uint16_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const uint16_t c = printable ? static_cast<uint16_t>(b) : next++;
      character[static_cast<size_t>(b)] = c;
      byte[c] = static_cast<int16_t>(b);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

std::string SpellByte(unsigned char byte) {
  std::string text;
  AppendCodePoint(kAlphabet.character[byte], text);
  return text;
}

bool ReadSpelledBytes(std::string_view spelled, std::string& bytes) {
  std::string read;
  for (size_t at = 0; at < spelled.size();) {
    const auto first = static_cast<unsigned char>(spelled[at]);
    size_t c = first;
    if (first >= 0x80) {  // the alphabet ends below U+0800: two bytes
      if (first < 0xC2 || first > 0xDF || at + 1 == spelled.size()) return false;
      c = (c & 0x1F) << 6 | (static_cast<unsigned char>(spelled[++at]) & 0x3F);
    }
    if (c >= kAlphabet.byte.size() || kAlphabet.byte[c] < 0) return false;
    read += static_cast<char>(kAlphabet.byte[c]);
    ++at;
  }
  bytes += read;
  return true;
}

}  // namespace lamina
