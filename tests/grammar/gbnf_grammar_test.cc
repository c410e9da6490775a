#include "grammar/gbnf_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/grammar_texts.h"

namespace lamina::testing {
namespace {

using ::testing::HasSubstr;

Result<Grammar> Compile(const std::string& text) {
  return CompileConstraint({.kind = ConstraintKind::kGrammar, .text = text});
}

Automaton Made(const std::string& text) {
  const Result<Grammar> grammar = Compile(text);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return Automaton(*grammar, ByteVocabulary());
}

TEST(GbnfGrammar, ReadsTheNotation) {
  Automaton automaton = Made(R"gbnf(
# a list of sums
root  ::= "[" (sum ("," ws? sum)*)? "]"   # with spaces
sum   ::= term ([+\-] term){0,2} |
          "none"
term  ::= [0-9]+ | "(" sum ")" |
          # and characters
          [^\x00-\x7Fa-z] . "\u00e9\n"
ws    ::= " "
)gbnf");
  for (const char* text :
       {"[]", "[1]", "[1+22-3]", "[1, 2,3]", "[none,(1+1)]", "[(none)]", "[日xé\n]", "[((1))]"})
    EXPECT_TRUE(Accepts(automaton, text)) << text;
  for (const char* text : {"", "[", "[1+2+3+4]", "[,]", "[1,  2]", "[()]", "[axé\n]", "[1]x"})
    EXPECT_FALSE(Accepts(automaton, text)) << text;
}

TEST(GbnfGrammar, RecursionGoesDeepAndStaysCheapAtTheEnd) {
  Automaton nested = Made(R"gbnf(root ::= "(" root ")" | "x")gbnf");
  const std::string open(900, '('), close(900, ')');
  EXPECT_TRUE(Accepts(nested, open + "x" + close));
  EXPECT_FALSE(Accepts(nested, open + "x" + close + ")"));
  EXPECT_FALSE(Accepts(nested, open + "x" + close.substr(1)));
  // Deeper than kMaxCalls there is nothing.
  EXPECT_FALSE(Accepts(nested, std::string(1100, '(') + "x" + std::string(1100, ')')));
  // What repeats by calling itself last is a loop.
  Automaton loop = Made(R"(root ::= "a" root | "b")");
  EXPECT_TRUE(Accepts(loop, std::string(50000, 'a') + "b"));
  EXPECT_LT(loop.held_bytes(), size_t{1} << 16);
}

struct Refused {
  const char* text;
  const char* says;
};

TEST(GbnfGrammar, RefusesWithTheLine) {
  for (const Refused& one :
       {Refused{"", "no rule 'root'"}, Refused{"a ::= \"x\"", "no rule 'root'"},
        Refused{"root ::= a", "line 1: the rule 'a' is not defined"},
        Refused{"root ::= \"x\"\nroot ::= \"y\"", "line 2: the rule 'root' is defined twice"},
        Refused{"root = \"x\"", "'::=' is expected"}, Refused{"root ::= \"x", "no closing quote"},
        Refused{"root ::= [a", "no ']'"}, Refused{"root ::= (\"a\"", "')' is expected"},
        Refused{"root ::= \"a\" )", "behind the end of the rule"},
        Refused{"root ::= root \"a\" | \"b\"", "left-recursive: the rule 'root'"},
        Refused{"root ::= b \"a\" | \"b\"\nb ::= \"x\"? root", "left-recursive"},
        Refused{"root ::= \"a\" root", "no text satisfies"},
        Refused{"root ::= \"a\"{2,1}", "wrong way round"},
        Refused{"root ::= \"\\q\"", "an escape is not one of"},
        Refused{"root ::= [b-a]", "wrong way round"},
        Refused{"root ::= \"a\"{9999999}", "above 1048576"},
        Refused{"root ::= \"a\"{900000}", "65536 states"}}) {
    const Result<Grammar> grammar = Compile(one.text);
    ASSERT_FALSE(grammar.ok()) << one.text;
    EXPECT_EQ(grammar.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(grammar.status().message(), HasSubstr(one.says)) << one.text;
  }
}

}  // namespace
}  // namespace lamina::testing
