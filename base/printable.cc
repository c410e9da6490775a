#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>

namespace lamina {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};

// Controls, U+0085 (next line) among them; the soft hyphen; marks of direction; what has no width;
// ends of lines and paragraphs, and what turns the direction of writing round; the byte order mark;
// annotations; tags.
constexpr Range kSpelledOut[] = {
    {0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},       {0x61c, 0x61c},
    {0x180e, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e},   {0x2060, 0x206f},
    {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe0fff},
};

bool IsSpelledOut(uint32_t code_point) {
  const auto has = [&](Range range) {
    return code_point >= range.first && code_point <= range.last;
  };
  return std::ranges::any_of(kSpelledOut, has);
}

// The number of bytes of the character that `text` begins with; 0: none that is whole (RFC 3629).
size_t FirstCharacter(std::string_view text, uint32_t& code_point) {
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // of a character with so many bytes
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  code_point = byte(0);
  if (code_point < 0x80) return 1;
  const auto size = static_cast<size_t>(std::countl_one(byte(0)));
  if (size < 2 || size > 4 || size > text.size()) return 0;
  code_point &= 0x7fu >> size;
  for (size_t i = 1; i < size; ++i) {
    if (std::countl_one(byte(i)) != 1) return 0;
    code_point = code_point << 6 | (byte(i) & 0x3fu);
  }
  const bool is_surrogate = code_point >= 0xd800 && code_point <= 0xdfff;
  return code_point < kLeast[size] || code_point > 0x10ffff || is_surrogate ? 0 : size;
}

void Spell(uint32_t code_point, std::string& line) {
  if (code_point == '\n') {
    line += "\\n";
  } else if (code_point <= 0xff) {
    fmt::format_to(std::back_inserter(line), "\\x{:02x}", code_point);
  } else if (code_point <= 0xffff) {
    fmt::format_to(std::back_inserter(line), "\\u{:04x}", code_point);
  } else {
    fmt::format_to(std::back_inserter(line), "\\U{:08x}", code_point);
  }
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  while (!text.empty()) {
    uint32_t code_point = 0;
    const size_t size = FirstCharacter(text, code_point);
    if (size == 0) {
      Spell(static_cast<uint8_t>(text[0]), line);
    } else if (IsSpelledOut(code_point)) {
      Spell(code_point, line);
    } else {
      line += text.substr(0, size);
    }
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  return line;
}

std::string Briefly(std::string_view text, size_t max_bytes) {
  constexpr size_t kLongestCharacter = 4;  // one that the copy cuts begins behind what stays
  std::string line = Printable(text.substr(0, max_bytes + kLongestCharacter));
  if (line.size() <= max_bytes) return line;
  while (max_bytes > 0 && (static_cast<uint8_t>(line[max_bytes]) & 0xc0) == 0x80) --max_bytes;
  line.resize(max_bytes);
  return line + "...";
}

}  // namespace lamina
