#include "text/unicode.h"

#include <gtest/gtest.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uclean.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "text/utf8.h"

namespace lamina {
namespace {

// ICU's own, all at once.
std::string ByIcu(const std::string& text, NormalForm form) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer =
      form == NormalForm::kNfc    ? icu::Normalizer2::getNFCInstance(error)
      : form == NormalForm::kNfd  ? icu::Normalizer2::getNFDInstance(error)
      : form == NormalForm::kNfkc ? icu::Normalizer2::getNFKCInstance(error)
                                  : icu::Normalizer2::getNFKDInstance(error);
  std::string normalized;
  icu::StringByteSink<std::string> sink(&normalized);
  normalizer->normalizeUTF8(0, text, sink, nullptr, error);
  EXPECT_TRUE(U_SUCCESS(error));
  return normalized;
}

constexpr NormalForm kForms[] = {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc,
                                 NormalForm::kNfkd};

// Marks of all kinds: above, below, some that decompose, of class 0, of other scripts; and letters
// that end with marks.
TEST(Unicode, LongRunsOfMarksBecomeWhatIcuMakesOfThem) {
  const std::vector<std::string> marks = {"\u0301", "\u0323", "\u0344", "\u0f73", "\u0f71",
                                          "\u05b0", "\u3099", "\uff9e", "\u0345", "\u20dd",
                                          "\u1161", "\u11a8", "\u093c", "\u09be", "\U0001d165"};
  const std::vector<std::string> letters = {"a",      "\u1ea5", "\u00e9", "\u1100", "\uac00",
                                            "\u0928", "\ufdfa", "\u30ab", " ",      "\u01d5"};
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (int run = 0; run < 3; ++run) {
      if (random() % 4 != 0) text += letters[random() % letters.size()];
      const size_t kinds = 1 + random() % marks.size(), length = random() % 80;
      for (size_t j = 0; j < length; ++j) text += marks[random() % kinds];
    }
    for (const NormalForm form : kForms)
      ASSERT_EQ(Normalized(text, form).value(), ByIcu(text, form)) << text;
  }
}

// Any client can send such a text, and Qwen's tokenizers normalize it: it took minutes.
TEST(Unicode, LongRunsOfMarksTakeNLogNTime) {
  for (const char* pair : {"\u0301\u0323", "\u0f73", "\u0344\u0323", "\U0001d165\u0301"}) {
    std::string text = "a";
    while (text.size() < 1'000'000) text += pair;
    for (const NormalForm form : kForms) {
      const TimePoint start = Clock::now();
      EXPECT_GE(Normalized(text, form).value().size(), 900'000u);
      EXPECT_LT(SecondsSince(start), 10) << pair;
    }
  }
}

TEST(Unicode, Forms) {
  EXPECT_EQ(Normalized("plain", NormalForm::kNfc).value(), "plain");
  EXPECT_EQ(Normalized("e\u0301", NormalForm::kNfc).value(), "\u00e9");
  EXPECT_EQ(Normalized("\u00e9", NormalForm::kNfd).value(), "e\u0301");
  EXPECT_EQ(Normalized("\ufb01\u2460", NormalForm::kNfc).value(), "\ufb01\u2460");
  EXPECT_EQ(Normalized("\ufb01\u2460", NormalForm::kNfkc).value(), "fi1");
  EXPECT_EQ(Normalized(std::string("\0e\u0301", 4), NormalForm::kNfc).value(),
            std::string("\0\u00e9", 3));
}

TEST(Unicode, WithoutMemoryForTheFormThereIsAnError) {
  std::string text = "e";
  while (text.size() < 1000)
    text += "\u0301";  // one piece, for which ICU's own buffer is too small
  ASSERT_TRUE(Normalized(text, NormalForm::kNfd).ok());  // tables are loaded now
  UErrorCode error = U_ZERO_ERROR;
  u_setMemoryFunctions(
      nullptr, [](const void*, size_t) -> void* { return nullptr; },
      [](const void*, void*, size_t) -> void* { return nullptr; },
      [](const void*, void* memory) { std::free(memory); }, &error);
  const Result<std::string> normalized = Normalized(text, NormalForm::kNfc);
  u_setMemoryFunctions(
      nullptr, [](const void*, size_t size) { return std::malloc(size); },
      [](const void*, void* memory, size_t size) { return std::realloc(memory, size); },
      [](const void*, void* memory) { std::free(memory); }, &error);
  ASSERT_TRUE(U_SUCCESS(error));
  EXPECT_EQ(normalized.status().code(), StatusCode::kOutOfSpace);
  EXPECT_TRUE(Normalized(text, NormalForm::kNfc).ok());
}

TEST(Unicode, LowercaseLooksAtOneCharacter) {
  // No final sigma.
  EXPECT_EQ(Lowercase("A\u00c9\u0416 \u03a3\u03a3"), "a\u00e9\u0436 \u03c3\u03c3");
  EXPECT_EQ(Lowercase("\u0130"), "i\u0307");
}

TEST(Unicode, SpacesAtTheEnds) {
  EXPECT_EQ(LeadingSpaceBytes(" \t\u3000x "), 5u);
  EXPECT_EQ(TrailingSpaceBytes(" x\u00a0\n"), 3u);
  EXPECT_EQ(LeadingSpaceBytes("\u180ex"), 0u);  // was white space before Unicode 6.3
  EXPECT_EQ(TrailingSpaceBytes("  "), 2u);
  EXPECT_EQ(LeadingSpaceBytes(""), 0u);
}

TEST(Unicode, WordCharacters) {
  EXPECT_TRUE(StartsWithWord("\u00e9") && StartsWithWord("_") && StartsWithWord("7") &&
              EndsWithWord("x\u0301") && EndsWithWord("\u4e00"));
  EXPECT_FALSE(StartsWithWord("") || StartsWithWord("-a") || EndsWithWord("a.") ||
               EndsWithWord("\u00b2"));
}

// [c for c in map(chr, range(0x110000)) if c.isspace()] of Python 3.
TEST(Unicode, PythonSpacesAreThoseOfPython) {
  std::vector<uint32_t> expected = {0x20,   0x85,   0xa0,   0x1680, 0x2028,
                                    0x2029, 0x202f, 0x205f, 0x3000};
  for (uint32_t c = 0x9; c <= 0xd; ++c) expected.push_back(c);
  for (uint32_t c = 0x1c; c <= 0x1f; ++c) expected.push_back(c);
  for (uint32_t c = 0x2000; c <= 0x200a; ++c) expected.push_back(c);
  std::ranges::sort(expected);
  std::vector<uint32_t> found;
  for (uint32_t c = 0; c <= 0x10ffff; ++c) {
    if (c >= 0xd800 && c <= 0xdfff) continue;  // surrogates are not encoded
    std::string text;
    AppendCodePoint(c, text);
    if (StartsWithPythonSpace(text + "x")) found.push_back(c);
  }
  EXPECT_EQ(found, expected);
  for (const char* none : {"", "\xa0", "\x85", "\xe3\x80", "x "})
    EXPECT_FALSE(StartsWithPythonSpace(none)) << none;
}

}  // namespace
}  // namespace lamina
