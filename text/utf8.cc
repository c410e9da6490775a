#include "text/utf8.h"

#include <algorithm>

namespace lamina {
namespace {

uint8_t ByteAt(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

bool IsContinuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

// The second byte decides about overlong forms, surrogates and the upper limit (Unicode standard,
// table 3-7).
bool SecondByteFits(uint8_t first, uint8_t second) {
  switch (first) {
    case 0xE0: return second >= 0xA0 && second <= 0xBF;
    case 0xED: return second >= 0x80 && second <= 0x9F;
    case 0xF0: return second >= 0x90 && second <= 0xBF;
    case 0xF4: return second >= 0x80 && second <= 0x8F;
    default: return IsContinuation(second);
  }
}

size_t LengthFromFirstByte(uint8_t first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  if (first >= 0xF0 && first <= 0xF4) return 4;
  return 0;
}

// Bytes at the beginning of `text` that fit into one character, which they may complete or not; 1
// if the first can start none.
size_t FittingBytes(std::string_view text) {
  const uint8_t first = ByteAt(text, 0);
  const size_t size = LengthFromFirstByte(first);
  size_t n = 1;
  while (n < size && n < text.size() &&
         (n == 1 ? SecondByteFits(first, ByteAt(text, 1)) : IsContinuation(ByteAt(text, n))))
    ++n;
  return n;
}

}  // namespace

Utf8Prefix ClassifyUtf8(std::string_view text, size_t* length) {
  const size_t size = LengthFromFirstByte(ByteAt(text, 0));
  const size_t fitting = FittingBytes(text);
  *length = 1;
  if (size == 0 || (fitting < size && fitting < text.size())) return Utf8Prefix::kInvalid;
  if (fitting < size) return Utf8Prefix::kIncomplete;
  *length = size;
  return Utf8Prefix::kComplete;
}

void TakeCompleteUtf8(std::string& pending, std::string& text, Repair repair) {
  std::string_view rest = pending;
  while (!rest.empty()) {
    size_t length = 0;
    const Utf8Prefix prefix = ClassifyUtf8(rest, &length);
    if (prefix == Utf8Prefix::kIncomplete) break;
    if (prefix == Utf8Prefix::kInvalid && repair == Repair::kEachSubpart)
      length = FittingBytes(rest);
    text += prefix == Utf8Prefix::kComplete ? rest.substr(0, length) : kReplacementCharacter;
    rest.remove_prefix(length);
  }
  pending.erase(0, pending.size() - rest.size());
}

void TakeAllUtf8(std::string& pending, std::string& text, Repair repair) {
  while (!pending.empty()) {
    TakeCompleteUtf8(pending, text, repair);
    if (pending.empty()) break;
    text += kReplacementCharacter;  // a character that never ends
    pending.erase(0, repair == Repair::kEachByte ? 1 : pending.size());
  }
}

std::string Shortened(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xC0) == 0x80) --max_bytes;
  return std::string(text.substr(0, max_bytes)) + "...";
}

size_t CountCodePoints(std::string_view text) {
  size_t count = 0;
  while (!text.empty()) {
    size_t length = 0;
    ClassifyUtf8(text, &length);
    text.remove_prefix(length);
    ++count;
  }
  return count;
}

uint32_t FirstCodePoint(std::string_view text, size_t* length) {
  const uint8_t first = ByteAt(text, 0);
  *length = std::clamp<size_t>(LengthFromFirstByte(first), 1, text.size());
  if (*length == 1) return first;
  uint32_t code_point = first & (0x7Fu >> *length);
  for (size_t i = 1; i < *length; ++i) code_point = code_point << 6 | (ByteAt(text, i) & 0x3Fu);
  return code_point;
}

void AppendCodePoint(uint32_t code_point, std::string& text) {
  const auto trail = [&](int shift) {
    text += static_cast<char>(0x80 | ((code_point >> shift) & 0x3F));
  };
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF)) {
    text += kReplacementCharacter;
  } else if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    text += static_cast<char>(0xC0 | (code_point >> 6));
    trail(0);
  } else if (code_point < 0x10000) {
    text += static_cast<char>(0xE0 | (code_point >> 12));
    trail(6);
    trail(0);
  } else {
    text += static_cast<char>(0xF0 | (code_point >> 18));
    trail(12);
    trail(6);
    trail(0);
  }
}

size_t CodePointOffset(std::string_view text, size_t index) {
  size_t offset = 0;
  for (; index > 0 && offset < text.size(); --index) {
    size_t length = 0;
    ClassifyUtf8(text.substr(offset), &length);
    offset += length;
  }
  return offset;
}

}  // namespace lamina
