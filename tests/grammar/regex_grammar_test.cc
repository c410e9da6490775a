#include "grammar/regex_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/grammar_texts.h"
#include "tests/support/paths.h"

namespace lamina::testing {
namespace regex_grammar_test {

using ::testing::HasSubstr;

Result<Grammar> Compile(const std::string& pattern, const RegexOptions& options) {
  GrammarBuilder builder;
  const GrammarBuilder::Rule root = builder.DeclareRule("root");
  LAMINA_ASSIGN_OR_RETURN(const Fragment body, AddRegex(pattern, options, builder));
  builder.DefineRule(root, body);
  return std::move(builder).Finish(root);
}

// Python's `re` is the oracle: regex_golden.py.
TEST(RegexGrammar, MatchesWhatPythonMatches) {
  std::ifstream file(SourcePath("/tests/grammar/regex_golden.json"));
  const nlohmann::json cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 1000u);
  for (const nlohmann::json& one : cases) {
    const auto pattern = one["pattern"].get<std::string>();
    for (const bool search : {false, true}) {
      const auto expected = one[search ? "within" : "whole"].get<std::string>();
      const Result<Grammar> grammar = Compile(pattern, {.search = search});
      ASSERT_TRUE(grammar.ok()) << pattern << ": " << grammar.status();
      Automaton automaton(*grammar, ByteVocabulary());
      for (size_t i = 0; i < expected.size(); ++i) {
        const auto text = one["strings"][i].get<std::string>();
        EXPECT_EQ(Accepts(automaton, text), expected[i] == '1')
            << "'" << pattern << "' and '" << text << "', search " << search;
      }
    }
  }
}

TEST(RegexGrammar, WritesJsonStringsWithTheirEscapes) {
  const Result<Grammar> grammar = Compile("[^a]\\n\"?", {.form = TextForm::kJsonString});
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  Automaton automaton(*grammar, ByteVocabulary());
  EXPECT_TRUE(Accepts(automaton, "b\\n"));
  EXPECT_TRUE(Accepts(automaton, "\\\"\\n\\\""));
  EXPECT_TRUE(Accepts(automaton, "\\u0001\\n"));
  EXPECT_FALSE(Accepts(automaton, "b\n"));
  EXPECT_FALSE(Accepts(automaton, "\"\\n"));
  EXPECT_FALSE(Accepts(automaton, "a\\n"));
}

struct Refused {
  const char* pattern;
  const char* says;
};

TEST(RegexGrammar, RefusesWhatIsNoRegularExpressionHere) {
  for (const Refused& one : {Refused{"(a", "no ')'"},
                             Refused{"a)", "closes no group"},
                             Refused{"[a", "no ']'"},
                             Refused{"a**", "quantifier follows a quantifier"},
                             Refused{"*a", "follows nothing"},
                             Refused{"a{2,1}", "wrong way round"},
                             Refused{"a{x}", "'{' begins no count"},
                             Refused{"[b-a]", "wrong way round"},
                             Refused{"(?=a)", "looks ahead"},
                             Refused{"(?<!a)b", "looks behind"},
                             Refused{"(a)\\1", "looks back"},
                             Refused{"\\bword\\b", "'\\b' is not supported"},
                             Refused{"(?i)a", "flags"},
                             Refused{"\\p{L}", "'\\p' is not supported"},
                             Refused{"a^b", "ends of an alternative"},
                             Refused{"a$b", "behind '$'"},
                             Refused{"\\xZZ", "hexadecimal"},
                             Refused{"\\ud800", "names no character"},
                             Refused{"a\\", "stands at the end"},
                             Refused{"a{2000000}", "above 1048576"},
                             Refused{"a\xff", "not UTF-8"}}) {
    const Result<Grammar> grammar = Compile(one.pattern, {});
    ASSERT_FALSE(grammar.ok()) << one.pattern;
    EXPECT_EQ(grammar.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(grammar.status().message(), HasSubstr(one.says)) << one.pattern;
  }
  EXPECT_THAT(Compile("ab(c", {}).status().message(), HasSubstr("at character 5"));
}

TEST(RegexGrammar, CountsAreBoundedByTheGrammarsSize) {
  EXPECT_TRUE(Compile("a{20000}", {}).ok());
  for (const char* bomb :
       {"a{100000}", "((a{1000}){1000}b)?(((c{500}){500}){500}){500}[^a]{90000}",
        "(((((((((a{99}b?){99}c?){99}d?){99}){99}){99}){99}){99}){99}){9999999}"}) {
    const Result<Grammar> grammar = Compile(bomb, {});
    ASSERT_FALSE(grammar.ok()) << bomb;
  }
  EXPECT_THAT(Compile("a{100000}", {}).status().message(), HasSubstr("65536 states"));
}

}  // namespace regex_grammar_test
}  // namespace lamina::testing
