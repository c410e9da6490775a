#include "frontend/text/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include <algorithm>

#include "frontend/text/utf8.h"

namespace lamina {
namespace {

const icu::Normalizer2* FindNormalizer(NormalForm form) {
  UErrorCode error = U_ZERO_ERROR;
  switch (form) {
    case NormalForm::kNfc: return icu::Normalizer2::getNFCInstance(error);
    case NormalForm::kNfd: return icu::Normalizer2::getNFDInstance(error);
    case NormalForm::kNfkc: return icu::Normalizer2::getNFKCInstance(error);
    case NormalForm::kNfkd: return icu::Normalizer2::getNFKDInstance(error);
  }
  return nullptr;
}

bool IsAscii(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; });
}

bool IsWord(UChar32 c) {
  constexpr uint32_t kWordMask = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return (U_GET_GC_MASK(c) & kWordMask) != 0 || u_hasBinaryProperty(c, UCHAR_ALPHABETIC) || u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL);
}

UChar32 FirstCharacter(std::string_view text, size_t* length) { return static_cast<UChar32>(FirstCodePoint(text, length)); }

UChar32 LastCharacter(std::string_view text, size_t* length) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;  // bytes that go on with a character
  return FirstCharacter(text.substr(begin), length);
}

}  // namespace

std::string Normalized(std::string_view text, NormalForm form) {
  std::string normalized;
  if (IsAscii(text)) return normalized = text;
  normalized.reserve(text.size());
  icu::StringByteSink<std::string> sink(&normalized);
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = FindNormalizer(form);
  if (normalizer != nullptr) {
    normalizer->normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink, nullptr, error);
  }
  return normalizer != nullptr && U_SUCCESS(error) ? normalized : std::string(text);  // fails only for lack of memory
}

std::string Lowercase(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  for (size_t length = 0; !text.empty(); text.remove_prefix(length)) {
    const UChar32 c = FirstCharacter(text, &length);
    AppendCodePoint(static_cast<uint32_t>(c == 0x130 ? 'i' : u_tolower(c)), lower);
    if (c == 0x130) AppendCodePoint(0x307, lower);  // the only character that becomes two
  }
  return lower;
}

size_t LeadingSpaceBytes(std::string_view text) {
  size_t bytes = 0;
  for (size_t length = 0; bytes < text.size(); bytes += length) {
    if (!u_isUWhiteSpace(FirstCharacter(text.substr(bytes), &length))) break;
  }
  return bytes;
}

size_t TrailingSpaceBytes(std::string_view text) {
  size_t bytes = 0;
  for (size_t length = 0; bytes < text.size(); bytes += length) {
    if (!u_isUWhiteSpace(LastCharacter(text.substr(0, text.size() - bytes), &length))) break;
  }
  return bytes;
}

bool StartsWithWord(std::string_view text) {
  size_t length = 0;
  return !text.empty() && IsWord(FirstCharacter(text, &length));
}

bool EndsWithWord(std::string_view text) {
  size_t length = 0;
  return !text.empty() && IsWord(LastCharacter(text, &length));
}

}  // namespace lamina
