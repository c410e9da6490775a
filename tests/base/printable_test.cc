#include "base/printable.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

TEST(Printable, TextOfAnyScriptStaysAsItIs) {
  for (const char* text :
       {"", "manager c0", "m\xc3\xa4nager", "\xe7\xae\xa1", "\xf0\x9f\x98\x80", "back\\slash"})
    EXPECT_EQ(Printable(text), text);
}

TEST(Printable, NothingEndsTheLineOrGivesOrders) {
  EXPECT_EQ(Printable("a\nb\r\x1b[2J\x7f"), "a\\nb\\x0d\\x1b[2J\\x7f");
  EXPECT_EQ(Printable(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(Printable("\xc2\x85|\xc2\x9b"), "\\x85|\\x9b");
  EXPECT_EQ(Printable("\xe2\x80\xa8|\xe2\x80\xa9"), "\\u2028|\\u2029");
}

TEST(Printable, NothingIsHiddenOrWrittenTheOtherWayRound) {
  EXPECT_EQ(Printable("\xe2\x80\xae|\xe2\x81\xa6|\xe2\x80\x8f|\xd8\x9c"),
            "\\u202e|\\u2066|\\u200f|\\u061c");
  EXPECT_EQ(Printable("\xe2\x80\x8b|\xef\xbb\xbf|\xc2\xad"), "\\u200b|\\ufeff|\\xad");
  EXPECT_EQ(Printable("\xf3\xa0\x81\x81"), "\\U000e0041");
}

// A terminal of 8 bits takes them for controls, and a protobuf string with them cannot be parsed.
TEST(Printable, BytesThatBelongToNoCharacterAreSpelledOut) {
  EXPECT_EQ(Printable("\x9b|\xff|a\x80"), "\\x9b|\\xff|a\\x80");
  EXPECT_EQ(Printable("\xe2\x80"), "\\xe2\\x80") << "cut short";
  EXPECT_EQ(Printable("\xc0\x8a"), "\\xc0\\x8a") << "a line's end in too many bytes";
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "above U+10FFFF";
}

TEST(Briefly, LongTextIsCutBetweenCharacters) {
  EXPECT_EQ(Briefly("manager", 7), "manager");
  EXPECT_EQ(Briefly("managers", 7), "manager...");
  EXPECT_EQ(Briefly("manag\xc3\xa4\xc3\xa4", 6), "manag...");
  EXPECT_EQ(Briefly("manag\xc3\xa4\xc3\xa4", 7), "manag\xc3\xa4...");
  EXPECT_EQ(Briefly("manag\xe2\x82\xac", 6), "manag...");
  EXPECT_EQ(Briefly(std::string(1 << 20, '\n'), 4), "\\n\\n...");
}

}  // namespace
}  // namespace lamina
