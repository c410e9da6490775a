#include "text/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "text/oniguruma_pattern.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;

// The matches, in brackets.
std::string Marked(std::string_view pattern, const std::string& text) {
  const auto regex = Regex::Compile(pattern);
  if (!regex.ok()) return regex.status().message();
  std::string marked;
  size_t done = 0;
  const Status status =
      regex.value()->ForEachMatch(text, TokenizerTime(text.size()), [&](size_t begin, size_t end) {
        marked += text.substr(done, begin - done) + "[" + text.substr(begin, end - begin) + "]";
        done = end;
      });
  if (!status.ok()) return status.message();
  return marked + text.substr(done);
}

TEST(Regex, FindsFromLeftToRight) {
  EXPECT_EQ(Marked("a+", "baab a"), "b[aa]b [a]");
  EXPECT_EQ(Marked("x", ""), "");
  EXPECT_EQ(Marked("\\p{L}+", "h\u00e9 \u4e00"), "[h\u00e9] [\u4e00]");
  EXPECT_EQ(Marked("\\s+(?!\\S)", "a  b  "), "a[ ] b[  ]");
  EXPECT_EQ(Marked("(?i:'s|'t)", "It'S 't"), "It['S] ['t]");
}

// Where an empty match would follow another match directly, it does not count.
TEST(Regex, EmptyMatches) {
  EXPECT_EQ(Marked("", "\u00e9b"), "[]\u00e9[]b[]");
  EXPECT_EQ(Marked("a*", "baac"), "[]b[aa]c[]");
  EXPECT_EQ(Marked("(?=b)", "abb"), "a[]b[]b");
}

TEST(Regex, SetsAreThoseOfOniguruma) {
  EXPECT_EQ(Marked("\\s", "a\u0085\u00a0\u3000\u180e\u200b"),
            "a[\u0085][\u00a0][\u3000]\u180e\u200b");
  EXPECT_EQ(Marked("[^\\s]", " \u180e"), " [\u180e]");
  EXPECT_EQ(Marked("\\S", " \u180e"), " [\u180e]");
  EXPECT_EQ(Marked("\\w", "e\u0301\u00b2_\u24b6-"), "[e][\u0301][\u00b2][_][\u24b6]-");
  EXPECT_EQ(Marked("\\h+", "fg \tA0"), "[f]g \t[A0]");
  EXPECT_EQ(Marked("\\v", "\n\x0b"), "\n[\x0b]");
  EXPECT_EQ(Marked("\\u00e9|\\x41", "\u00e9A"), "[\u00e9][A]");
  EXPECT_EQ(Marked("^b", "a\nb"), "a\n[b]");  // lines, without an option
  EXPECT_EQ(Marked(".", "\n\r"), "\n[\r]");
}

TEST(Regex, WhatTheTwoReadDifferentlyIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"[a&&b]", "&&"},          {"[a[b]]", "class within"},
      {"(?m)a", "(?m)"},         {"a(?i)b", "(?i)"},
      {"a{1,2}+", "}+"},         {"(a)\\1", "\\1"},
      {"\\bx", "\\b"},           {"\\Gx", "\\G"},
      {"\\xe9", "\\x"},          {"[\\S]", "\\S"},
      {"(*FAIL)", "(*"},         {"\\Qx\\E", "\\Q"},
      {"(?<n>a)", "(?<n"},       {"\\pL", "\\p"},
      {"[]a]", "begins with ]"}, {"a\\", "\\"}};
  for (const auto& [pattern, name] : cases) {
    const Status status = TranslateOniguruma(pattern).status();
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << pattern;
    EXPECT_THAT(status.message(), HasSubstr(name));
  }
  EXPECT_EQ(Regex::Compile("a(").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Regex::Compile(std::string(100'000, 'a')).status().code(),
            StatusCode::kInvalidArgument);
}

// One backtracks without end from its first place; the other takes a little longer from each of
// many places.
TEST(Regex, WorkOnATextIsBoundedAndGivingUpIsAnError) {
  const std::string text(100'000, 'a');
  for (const char* pattern : {"(?:a|aa)+x?(?=b)", "(?:a|c)+x?(?=[0-9])"}) {
    const auto regex = Regex::Compile(pattern);
    ASSERT_TRUE(regex.ok()) << regex.status();
    const auto begin = std::chrono::steady_clock::now();
    const Status status =
        regex.value()->ForEachMatch(text, TokenizerTime(text.size()), [](size_t, size_t) {});
    EXPECT_EQ(status.code(), StatusCode::kOutOfSpace) << pattern << ": " << status;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(120)) << pattern;
  }
  EXPECT_EQ(Marked("a+", text), "[" + text + "]");
}

// Places are tried in windows that grow; where a match lies in them changes nothing.
TEST(Regex, MatchesAreFoundHoweverFarTheyLie) {
  for (size_t gap = 0; gap < 200; ++gap) {
    std::string before;
    for (size_t i = 0; i < gap; ++i) before += i % 3 == 0 ? "\u00e9" : "-";
    EXPECT_EQ(Marked("(?<=[^a])a+|b$", before + "-aa" + before + "b"),
              before + "-[aa]" + before + "[b]");
  }
}

TEST(Regex, LiteralsHaveNoSyntax) {
  const auto regex = Regex::Literal("a.*(");
  ASSERT_TRUE(regex.ok()) << regex.status();
  size_t at = 0;
  EXPECT_TRUE(
      regex.value()
          ->ForEachMatch("xa.*(y", TokenizerTime(6), [&](size_t begin, size_t) { at = begin; })
          .ok());
  EXPECT_EQ(at, 1u);
  EXPECT_FALSE(Regex::Literal("").ok());
}

}  // namespace
}  // namespace lamina
