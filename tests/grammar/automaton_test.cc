#include "grammar/automaton.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/token_mask.h"
#include "grammar/constrained_text.h"
#include "tests/support/grammar_texts.h"
#include "tests/support/paths.h"
#include "text/tokenizer.h"

namespace lamina::testing {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const Vocabulary> TinyStories() {
  const Result<std::unique_ptr<Tokenizer>> tokenizer =
      LoadTokenizer(SourcePath("/models/tiny-stories"));
  return Vocabulary::Of(**tokenizer, (*tokenizer)->vocab_size() + 3);
}

// Tokens of few letters, of which many begin with others, and with characters cut in the middle.
std::shared_ptr<const Vocabulary> RandomVocabulary(uint32_t seed) {
  std::mt19937 random(seed);
  const std::vector<std::string> pieces = {"a",    "b",    "1",  "\"",       "\\", "{",  "}",
                                           "[",    "]",    ",",  ":",        " ",  "\n", "é",
                                           "\xC3", "\xA9", "日", "\xE6\x97", "n"};
  std::vector<std::string> tokens = {"", ""};
  for (int i = 0; i < 400; ++i) {
    std::string& token = tokens.emplace_back();
    const size_t length = 1 + random() % 5;
    for (size_t k = 0; k < length; ++k) token += pieces[random() % pieces.size()];
  }
  return std::make_shared<const Vocabulary>(std::move(tokens));
}

std::vector<Constraint> SomeConstraints() {
  return {{.kind = ConstraintKind::kJsonObject},
          {.kind = ConstraintKind::kRegex, .text = "[ab1é]{2,9}|\"[^\"]*\"|(a\\n?)*"},
          {.kind = ConstraintKind::kRegex, .text = ".{0,30}"},
          {.kind = ConstraintKind::kChoice, .choices = {"a", "ab", "abba", "日1", "[a]"}},
          {.kind = ConstraintKind::kGrammar, .text = "root ::= \"[\" (root | [a-b]*) \"]\" \",\"?"},
          {.kind = ConstraintKind::kJsonSchema,
           .schema = nlohmann::ordered_json::parse(
               R"({"type": "array", "items": {"type": "string", "maxLength": 30}})")}};
}

// Each token is walked through byte by byte.
void ExpectMasksOfEachToken(const Constraint& constraint,
                            const std::shared_ptr<const Vocabulary>& vocabulary, uint32_t seed) {
  const Result<Grammar> grammar = CompileConstraint(constraint);
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  Automaton automaton(*grammar, vocabulary);
  Automaton walked(*grammar, ByteVocabulary());
  std::mt19937 random(seed);
  for (int text = 0; text < 8; ++text) {
    std::string so_far;
    Automaton::State state = automaton.start();
    for (int step = 0; step < 12; ++step) {
      const Result<const TokenMask*> mask = automaton.MaskOf(state);
      ASSERT_TRUE(mask.ok()) << mask.status();
      const Automaton::State at = *walked.AdvanceBytes(walked.start(), so_far);
      ASSERT_NE(at, Automaton::kDead);
      ASSERT_EQ(automaton.accepts(state), walked.accepts(at)) << so_far;
      std::vector<TokenId> allowed;
      for (TokenId token = 0; token < vocabulary->size(); ++token) {
        const std::string_view bytes = vocabulary->bytes(token);
        const bool follows = !bytes.empty() && *walked.AdvanceBytes(at, bytes) != Automaton::kDead;
        ASSERT_EQ(HasToken((*mask)->bits, token), follows) << "'" << bytes << "' behind " << so_far;
        if (follows) allowed.push_back(token);
      }
      ASSERT_EQ((*mask)->count, std::ssize(allowed));
      if (allowed.empty()) break;
      const TokenId token = allowed[random() % allowed.size()];
      so_far += vocabulary->bytes(token);
      state = *automaton.Advance(state, std::span(&token, 1));
    }
  }
}

TEST(Automaton, MasksAreThoseOfEachToken) {
  const std::shared_ptr<const Vocabulary> tiny_stories = TinyStories();
  uint32_t seed = 0;
  for (const Constraint& constraint : SomeConstraints()) {
    for (int i = 0; i < 4; ++i) {
      ++seed;
      ExpectMasksOfEachToken(constraint, RandomVocabulary(seed), seed);
    }
    ExpectMasksOfEachToken(constraint, tiny_stories, ++seed);
  }
}

// Tokens of plain characters are in masks by how many they have, up to a number; around it, and
// where a run of them goes on with some characters but not with all, nothing may be lost.
TEST(Automaton, MasksOfRunsOfPlainCharactersAreThoseOfEachToken) {
  std::vector<std::string> tokens = {"\"", "\\", "\n", "\xC3", "\xA9", "a\x01"};
  for (const std::string character : {"a", "b", "é", "日"}) {
    std::string run;
    for (int length = 1; length <= Vocabulary::kMaxPlainCharacters + 3; ++length) {
      run += length % 3 == 0 ? "a" : character;
      tokens.insert(tokens.end(), {run, run + "\"", run + "\xC3", run + "\xE6\x97", "\"" + run,
                                   "\\n" + run, run + "\xF0\x9F\x98", run + "\xED\xA0"});
    }
  }
  const auto vocabulary = std::make_shared<const Vocabulary>(std::move(tokens));
  const auto string_of = [](const char* schema) {
    return Constraint{.kind = ConstraintKind::kJsonSchema,
                      .schema = nlohmann::ordered_json::parse(schema)};
  };
  uint32_t seed = 100;
  for (const Constraint& constraint :
       {string_of(R"({"type": "string"})"), string_of(R"({"type": "string", "maxLength": 3})"),
        string_of(R"({"type": "string", "minLength": 2, "maxLength": 18})"),
        Constraint{.kind = ConstraintKind::kRegex, .text = ".{3}b.{0,20}"},
        Constraint{.kind = ConstraintKind::kRegex, .text = ".{5}[ab]{0,15}|.{16}"},
        Constraint{.kind = ConstraintKind::kRegex, .text = ".{2}\n.{0,4}"},
        Constraint{.kind = ConstraintKind::kRegex, .text = "[^日]{0,20}"},
        Constraint{.kind = ConstraintKind::kRegex, .text = "(ab?|é)*|[^a]{4}"}}) {
    for (int i = 0; i < 3; ++i) ExpectMasksOfEachToken(constraint, vocabulary, ++seed);
  }
}

TEST(Vocabulary, HasTextOfTheModelsTokensAndNoSpecialOnes) {
  const std::shared_ptr<const Vocabulary> vocabulary = TinyStories();
  const Result<std::unique_ptr<Tokenizer>> tokenizer =
      LoadTokenizer(SourcePath("/models/tiny-stories"));
  const Result<std::vector<TokenId>> encoded = (*tokenizer)->Encode("said é", false);
  std::string text;
  for (const TokenId token : *encoded) text += vocabulary->bytes(token);
  EXPECT_THAT(text, HasSubstr("said é"));
  EXPECT_EQ(vocabulary->bytes(*(*tokenizer)->eos()), "");
  EXPECT_EQ(vocabulary->bytes(static_cast<TokenId>(vocabulary->size() - 1)), "");
}

// A text that goes on elsewhere, or whose automaton has forgotten what it knew, gets the same.
TEST(ConstrainedText, IsAFunctionOfTheOutput) {
  const Result<Grammar> grammar = CompileConstraint({.kind = ConstraintKind::kJsonObject});
  ASSERT_TRUE(grammar.ok());
  const std::string bytes = grammar->ToBytes();
  Automata automata(ByteVocabulary());
  Result<ConstrainedText> first = automata.Begin(bytes);
  ASSERT_TRUE(first.ok()) << first.status();
  std::vector<TokenId> output;
  for (const char c : std::string(R"({"a": [1, {"b": "x\n"}]})")) {
    output.push_back(static_cast<uint8_t>(c));
    const Result<NextTokens> next = first->Next(output);
    ASSERT_TRUE(next.ok()) << next.status();
    const std::string mask = next->tokens->bits;
    Automata elsewhere(ByteVocabulary());
    Result<ConstrainedText> again = elsewhere.Begin(bytes);
    const Result<NextTokens> same = again->Next(output);
    ASSERT_TRUE(same.ok()) << same.status();
    EXPECT_EQ(same->tokens->bits, mask);
    EXPECT_EQ(same->may_end, next->may_end);
  }
  EXPECT_TRUE(first->Next(output)->may_end);
  EXPECT_EQ(first->Next(output)->tokens->count, 0);
  output.push_back('x');
  EXPECT_FALSE(first->Next(output).ok());
  EXPECT_TRUE(first->Next(std::span(output).first(3)).ok());  // a preempted one has fewer
  EXPECT_FALSE(automata.Begin("no grammar").ok());
}

TEST(ConstrainedText, OutlivesWhatItsAutomatonKept) {
  const Result<Grammar> grammar =
      CompileConstraint({.kind = ConstraintKind::kRegex, .text = "a{3}b"});
  auto automaton = std::make_shared<Automaton>(*grammar, ByteVocabulary());
  ConstrainedText text(automaton);
  const std::vector<TokenId> output = {'a', 'a', 'a'};
  ASSERT_TRUE(text.Next(std::span(output).first(2)).ok());
  automaton->Forget();
  const Result<NextTokens> next = text.Next(output);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(HasToken(next->tokens->bits, 'b'));
  EXPECT_EQ(next->tokens->count, 1);
}

TEST(Grammar, BytesAreTakenBackAndOthersRefused) {
  for (const Constraint& constraint : SomeConstraints()) {
    const Result<Grammar> grammar = CompileConstraint(constraint);
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    const std::string bytes = grammar->ToBytes();
    const Result<Grammar> back = Grammar::FromBytes(bytes);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, *grammar);
    for (size_t size = 0; size < bytes.size(); size += 1 + size / 8)
      EXPECT_FALSE(Grammar::FromBytes(bytes.substr(0, size)).ok());
    EXPECT_FALSE(Grammar::FromBytes(bytes + "x").ok());
  }
  // Sizes that no bytes stand behind take no memory.
  EXPECT_FALSE(Grammar::FromBytes("lgr1\xFF\xFF\xFF\xFF\x0F\x01\x01").ok());
}

// Each way through the grammar is another thread, and they multiply.
TEST(Automaton, AmbiguityIsBounded) {
  std::string rules = "root ::= x0\n";
  for (int i = 0; i < 12; ++i) {
    const std::string next = i == 11 ? "\"a\"" : "x" + std::to_string(i + 1);
    rules += "x" + std::to_string(i) + " ::= (" + next + " | " + next + " \"b\"? | \"a\"? " + next +
             "){1,9}\n";
  }
  const Result<Grammar> grammar =
      CompileConstraint({.kind = ConstraintKind::kGrammar, .text = rules});
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  Automaton automaton(*grammar, ByteVocabulary());
  Automaton::State state = automaton.start();
  for (int i = 0; i < 50 && state != Automaton::kDead; ++i) {
    const Result<const TokenMask*> mask = automaton.MaskOf(state);
    if (!mask.ok()) {
      EXPECT_THAT(mask.status().message(), HasSubstr("too ambiguous"));
      return;
    }
    const Result<Automaton::State> next = automaton.AdvanceBytes(state, "a");
    if (!next.ok()) return;
    state = *next;
  }
  EXPECT_LT(automaton.held_bytes(), size_t{1} << 30);
}

}  // namespace
}  // namespace lamina::testing
