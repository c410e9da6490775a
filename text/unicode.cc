#include "text/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "text/utf8.h"

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
  return (U_GET_GC_MASK(c) & kWordMask) != 0 || u_hasBinaryProperty(c, UCHAR_ALPHABETIC) ||
         u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL);
}

UChar32 FirstCharacter(std::string_view text, size_t* length) {
  return static_cast<UChar32>(FirstCodePoint(text, length));
}

UChar32 LastCharacter(std::string_view text, size_t* length) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;  // bytes that go on with a character
  return FirstCharacter(text.substr(begin), length);
}

// ICU inserts each mark into the run of marks before it, which takes time by the square of the
// run's length. Text has a few in a row.
constexpr size_t kLongRun = 32;

// Appends `run`, all of marks, decomposed and in canonical order, which every form makes of it on
// its way (Unicode standard, 3.11).
void AppendInOrder(std::string_view run, const icu::Normalizer2& decomposer, std::string& text) {
  struct Mark {
    uint8_t combining_class;
    UChar32 character;
  };
  std::vector<Mark> marks;
  const auto add = [&](UChar32 c) { marks.push_back({u_getCombiningClass(c), c}); };
  for (size_t length = 0; !run.empty(); run.remove_prefix(length)) {
    const UChar32 c = FirstCharacter(run, &length);
    icu::UnicodeString parts;
    if (!decomposer.getDecomposition(c, parts)) {
      add(c);
      continue;
    }
    for (int32_t i = 0; i < parts.length(); i = parts.moveIndex32(i, 1)) add(parts.char32At(i));
  }
  // Nothing moves over a character of class 0.
  for (auto begin = marks.begin(); begin != marks.end();) {
    const auto end = std::find_if(begin, marks.end(),
                                  [](const Mark& mark) { return mark.combining_class == 0; });
    std::stable_sort(begin, end, [](const Mark& a, const Mark& b) {
      return a.combining_class < b.combining_class;
    });
    begin = end == marks.end() ? end : end + 1;
  }
  for (const Mark& mark : marks) AppendCodePoint(static_cast<uint32_t>(mark.character), text);
}

// A text with the same normal form in which long runs of marks are in order; "": `text` has no long
// runs.
std::string WithLongRunsInOrder(std::string_view text, NormalForm form) {
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const icu::Normalizer2* decomposer =
      FindNormalizer(compatible ? NormalForm::kNfkd : NormalForm::kNfd);
  std::string ordered;
  if (decomposer == nullptr) return ordered;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = at, count = 0, length = 1;
    while (end < text.size() && (text[end] & 0x80) != 0 &&
           !decomposer->hasBoundaryBefore(FirstCharacter(text.substr(end), &length))) {
      end += length;
      ++count;
    }
    if (count > kLongRun) {
      ordered.append(text, done, at - done);
      AppendInOrder(text.substr(at, end - at), *decomposer, ordered);
      done = end;
    }
    at = end < text.size() && (text[end] & 0x80) == 0 ? end + 1 : end + (count == 0 ? length : 0);
  }
  return done == 0 ? ordered : ordered.append(text, done);
}

}  // namespace

Result<std::string> Normalized(std::string_view text, NormalForm form) {
  if (IsAscii(text)) return std::string(text);
  std::string normalized;
  const std::string ordered = WithLongRunsInOrder(text, form);
  if (!ordered.empty()) text = ordered;
  normalized.reserve(text.size());
  icu::StringByteSink<std::string> sink(&normalized);
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = FindNormalizer(form);
  if (normalizer == nullptr || text.size() > std::numeric_limits<int32_t>::max())
    return OutOfSpace("ICU cannot normalize a text of " + std::to_string(text.size()) + " bytes");
  normalizer->normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())),
                            sink, nullptr, error);
  if (U_FAILURE(error))
    return OutOfSpace("ICU cannot normalize a text of " + std::to_string(text.size()) +
                      " bytes: " + u_errorName(error));
  return normalized;
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

bool StartsWithPythonSpace(std::string_view text) {
  size_t length = 0;
  return !text.empty() && ClassifyUtf8(text, &length) == Utf8Prefix::kComplete &&
         u_isspace(FirstCharacter(text, &length));
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
