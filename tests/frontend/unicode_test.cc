#include "frontend/text/unicode.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

TEST(Unicode, Forms) {
  EXPECT_EQ(Normalized("plain", NormalForm::kNfc), "plain");
  EXPECT_EQ(Normalized("e\u0301", NormalForm::kNfc), "\u00e9");
  EXPECT_EQ(Normalized("\u00e9", NormalForm::kNfd), "e\u0301");
  EXPECT_EQ(Normalized("\ufb01\u2460", NormalForm::kNfc), "\ufb01\u2460");
  EXPECT_EQ(Normalized("\ufb01\u2460", NormalForm::kNfkc), "fi1");
  EXPECT_EQ(Normalized(std::string("\0e\u0301", 4), NormalForm::kNfc), std::string("\0\u00e9", 3));
}

TEST(Unicode, LowercaseLooksAtOneCharacter) {
  EXPECT_EQ(Lowercase("A\u00c9\u0416 \u03a3\u03a3"), "a\u00e9\u0436 \u03c3\u03c3");  // no final sigma
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
  EXPECT_TRUE(StartsWithWord("\u00e9") && StartsWithWord("_") && StartsWithWord("7") && EndsWithWord("x\u0301") && EndsWithWord("\u4e00"));
  EXPECT_FALSE(StartsWithWord("") || StartsWithWord("-a") || EndsWithWord("a.") || EndsWithWord("\u00b2"));
}

}  // namespace
}  // namespace lamina
