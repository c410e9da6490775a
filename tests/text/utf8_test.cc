#include "text/utf8.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

// All of `bytes`, handed over in pieces of `step` bytes.
std::string InPieces(const std::string& bytes, size_t step) {
  std::string pending;
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += step) {
    pending += bytes.substr(at, step);
    TakeCompleteUtf8(pending, text);
    EXPECT_LE(pending.size(), 3u);
  }
  TakeAllUtf8(pending, text);
  return text;
}

TEST(Utf8, WholeCharactersPassInAnyDivision) {
  const std::string text = "a\xC3\xA9\xE2\x98\x83\xF0\x9F\x98\x80z";
  for (size_t step = 1; step <= text.size(); ++step) EXPECT_EQ(InPieces(text, step), text) << step;
}

TEST(Utf8, BadBytesBecomeReplacementCharactersOneByOne) {
  const std::string replaced = "\xEF\xBF\xBD";
  EXPECT_EQ(InPieces("\xFF", 1), replaced);
  // overlong.
  EXPECT_EQ(InPieces("\xC0\x80", 1), replaced + replaced);
  // surrogate.
  EXPECT_EQ(InPieces("\xED\xA0\x80", 1), replaced + replaced + replaced);
  // Above U+10FFFF.
  EXPECT_EQ(InPieces("\xF4\x90\x80\x80", 4), replaced + replaced + replaced + replaced);
  EXPECT_EQ(InPieces("\xE2\x98z", 1), replaced + replaced + "z");
  EXPECT_EQ(InPieces("\xE2\x98", 1), replaced + replaced);  // the end comes early
  // The second byte begins a good character.
  EXPECT_EQ(InPieces("\xE2\xC3\xA9", 1), replaced + "\xC3\xA9");
}

TEST(Utf8, IncompleteCharactersWait) {
  std::string pending = "ab\xE2\x98";
  std::string text;
  TakeCompleteUtf8(pending, text);
  EXPECT_EQ(text, "ab");
  EXPECT_EQ(pending, "\xE2\x98");
}

TEST(Utf8, CountsAndFindsCharacters) {
  const std::string text = "a\xC3\xA9\xE2\x98\x83z";
  EXPECT_EQ(CountCodePoints(text), 4u);
  EXPECT_EQ(CodePointOffset(text, 2), 3u);
  EXPECT_EQ(CodePointOffset(text, 9), text.size());
}

TEST(Utf8, CodePointsAreWritten) {
  std::string text;
  for (const uint32_t code : {0x41u, 0xE9u, 0x2603u, 0x1F600u, 0xD800u, 0x110000u})
    AppendCodePoint(code, text);
  EXPECT_EQ(text, "A\xC3\xA9\xE2\x98\x83\xF0\x9F\x98\x80\xEF\xBF\xBD\xEF\xBF\xBD");
}

// What Python's bytes.decode(errors="replace") makes of the same bytes.
TEST(Utf8, OneMarkForEachBrokenSequenceIfAsked) {
  const std::pair<std::string, std::string> cases[] = {
      {"\xE2\x98", "?"},
      {"\xE2\x98z", "?z"},
      {"\xF0\x9F\x98\xE2\x98\x83", "?\xE2\x98\x83"},
      {"\xFF\xFE", "??"},
      {"\xE0\x80", "??"},
      {"\xED\xA0\x80", "???"},
      {"\xC3\xC3\xA9", "?\xC3\xA9"},
      {"\xF4\x90\x80", "???"},
      {"\x80", "?"}};
  for (const auto& [bytes, marks] : cases) {
    std::string expected;
    for (const char c : marks) c == '?' ? expected += kReplacementCharacter : expected += c;
    for (size_t step = 1; step <= bytes.size(); ++step) {
      std::string pending, text;
      for (size_t at = 0; at < bytes.size(); at += step) {
        pending += bytes.substr(at, step);
        TakeCompleteUtf8(pending, text, Repair::kEachSubpart);
      }
      TakeAllUtf8(pending, text, Repair::kEachSubpart);
      EXPECT_EQ(text, expected) << ::testing::PrintToString(bytes) << " in steps of " << step;
    }
  }
}

TEST(Utf8, FirstCodePointReadsWhatAppendCodePointWrites) {
  for (const uint32_t code_point :
       {0x0u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0x2603u, 0xFFFDu, 0x10000u, 0x10FFFFu}) {
    std::string text;
    AppendCodePoint(code_point, text);
    const size_t size = text.size();
    size_t length = 0;
    EXPECT_EQ(FirstCodePoint(text + "x", &length), code_point);
    EXPECT_EQ(length, size);
  }
}

}  // namespace
}  // namespace lamina
