#include "bench/grammar.h"

#include <algorithm>
#include <ctime>
#include <iostream>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/recorded_texts.h"
#include "bench/report.h"
#include "cli/commands.h"
#include "grammar/constrained_text.h"
#include "grammar/constraint.h"
#include "hub/find_model.h"
#include "plan/statistics.h"
#include "text/tokenizer.h"

namespace lamina {
namespace {

struct GrammarOptions {
  std::string tokenizer;  // a model's folder; "": a vocabulary is made up
  std::string recorded;   // a file of bench/recorded_texts.h; "": the cases below
  int64_t vocab_size = 128000;
  int num_texts = 20;
  int max_tokens = 200;
  bool json = false;
};

// About 5 kB: as many objects of ten properties as that takes.
nlohmann::ordered_json LargeSchema() {
  nlohmann::ordered_json schema = {{"type", "object"}, {"additionalProperties", false}};
  for (int i = 0; schema.dump().size() < 5000; ++i) {
    const std::string name = "section_" + std::to_string(i);
    schema["properties"][name] = nlohmann::ordered_json::parse(
        R"({"type": "object", "required": ["title", "count"], "additionalProperties": false,
        "properties": {"title": {"type": "string", "maxLength": 40}, "count": {"type": "integer",
        "minimum": 0, "maximum": 1000}, "kind": {"enum": ["first", "second", "third"]}, "day":
        {"type": "string", "format": "date"}, "parts": {"type": "array", "items": {"anyOf": [{"type":
        "string"}, {"type": "number"}, {"type": "null"}]}, "maxItems": 20}}})");
    schema["required"].push_back(name);
  }
  return schema;
}

std::vector<GrammarCase> GrammarCases() {
  return {{"choice", {.kind = ConstraintKind::kChoice, .choices = {"yes", "no", "I do not know"}}},
          {"regex", {.kind = ConstraintKind::kRegex, .text = "([A-Z][a-z]+ ){2,8}\\d{1,3}\\."}},
          {"JSON object", {.kind = ConstraintKind::kJsonObject}},
          {"JSON schema, 5 kB", {.kind = ConstraintKind::kJsonSchema, .schema = LargeSchema()}},
          {"GBNF",
           {.kind = ConstraintKind::kGrammar,
            .text = "root ::= sum\nsum ::= term ([-+] term)*\nterm ::= [0-9]+ | [a-z]+ | \"(\" sum "
                    "\")\"\n"}}};
}

// Bytes, and words as tokenizers have them: with spaces in front, of letters, digits or signs, and
// some characters of other scripts.
std::shared_ptr<const Vocabulary> MadeUpVocabulary(int64_t size) {
  std::mt19937_64 random(1);
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  const std::string signs = "{}[]\":,.;()=<>/\\-_+*'!?#$% \n\t";
  while (std::ssize(tokens) < size) {
    const uint64_t kind = random() % 20;
    std::string token = random() % 2 == 0 ? " " : "";
    const size_t length = 1 + random() % 10;
    for (size_t i = 0; i < length; ++i) {
      if (kind < 15) token += static_cast<char>((i == 0 && kind < 3 ? 'A' : 'a') + random() % 26);
      if (kind == 15 && i < 3) token += static_cast<char>('0' + random() % 10);
      if (kind >= 16 && kind < 18 && i < 5) token += signs[random() % signs.size()];
      if (kind >= 18 && i < 4)
        token += std::string("\xE4") + static_cast<char>(0xB8 + random() % 6) +
                 static_cast<char>(0x80 + random() % 64);
    }
    tokens.push_back(std::move(token));
  }
  return std::make_shared<const Vocabulary>(std::move(tokens));
}

// Time of this thread: others that use the same core do not count.
double ThreadUs() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

struct GrammarSamples {
  std::vector<double> compile_us, first_us, again_us;
  size_t grammar_bytes = 0;
};

// The times of the masks of a text that is given, behind each of its tokens.
Status FollowRecorded(ConstrainedText text, std::span<const TokenId> tokens,
                      std::vector<double>& us) {
  for (size_t length = 0; length <= tokens.size(); ++length) {
    const double start = ThreadUs();
    LAMINA_ASSIGN_OR_RETURN(const NextTokens next, text.Next(tokens.first(length)));
    us.push_back(ThreadUs() - start);
    if (length < tokens.size() && !HasToken(next.tokens->bits, tokens[length]))
      return InvalidArgument("token " + std::to_string(length) +
                             " of a recorded text is not allowed");
    if (length == tokens.size() && !next.may_end)
      return InvalidArgument("a recorded text is not complete");
  }
  return OkStatus();
}

// A text of random tokens that the masks allow, and the times of its masks.
Status FollowText(ConstrainedText text, const GrammarOptions& options, uint64_t seed,
                  std::vector<double>& us) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> output;
  while (std::ssize(output) < options.max_tokens) {
    const double start = ThreadUs();
    LAMINA_ASSIGN_OR_RETURN(const NextTokens next, text.Next(output));
    us.push_back(ThreadUs() - start);
    if (next.tokens->count == 0) break;
    auto skip = static_cast<int64_t>(random() % static_cast<uint64_t>(next.tokens->count));
    TokenId token = 0;
    for (;; ++token) {
      if (HasToken(next.tokens->bits, token) && skip-- == 0) break;
    }
    output.push_back(token);
  }
  return OkStatus();
}

Result<GrammarSamples> MeasureGrammar(const GrammarCase& test,
                                      const std::shared_ptr<const Vocabulary>& vocabulary,
                                      const GrammarOptions& options) {
  constexpr int kCompiles = 9;
  GrammarSamples samples;
  std::string bytes;
  for (int i = 0; i < kCompiles; ++i) {
    const double start = ThreadUs();
    LAMINA_ASSIGN_OR_RETURN(const Grammar grammar, CompileConstraint(test.constraint));
    bytes = grammar.ToBytes();
    // What the compute node does before the first mask.
    LAMINA_RETURN_IF_ERROR(Automata(vocabulary).Begin(bytes).status());
    samples.compile_us.push_back(ThreadUs() - start);
  }
  samples.grammar_bytes = bytes.size();
  Automata automata(vocabulary);
  for (std::vector<double>* us : {&samples.first_us, &samples.again_us}) {
    for (const std::vector<TokenId>& tokens : test.texts) {
      LAMINA_ASSIGN_OR_RETURN(ConstrainedText begun, automata.Begin(bytes));
      LAMINA_RETURN_IF_ERROR(FollowRecorded(std::move(begun), tokens, *us).WithContext(test.name));
    }
    for (int text = 0; text < options.num_texts && test.texts.empty(); ++text) {
      LAMINA_ASSIGN_OR_RETURN(ConstrainedText begun, automata.Begin(bytes));
      LAMINA_RETURN_IF_ERROR(
          FollowText(std::move(begun), options, static_cast<uint64_t>(text), *us));
    }
  }
  return samples;
}

void ReportGrammar(const GrammarCase& test, const std::string& what, const std::vector<double>& us,
                   const nlohmann::json& details, const Vocabulary& vocabulary, bool json) {
  Measurement measurement;
  measurement.name = "grammar " + what;
  measurement.sizes = {{"constraint", test.name}, {"vocabulary", vocabulary.size()}};
  measurement.value = Percentile(us, 0.5);
  measurement.unit = "us";
  measurement.p99 = Percentile(us, 0.99);
  measurement.p99_of = what == "compile" ? "us of a request" : "us of a token";
  measurement.note = "no reference; times of the thread";
  measurement.details = details;
  std::cout << (json ? ToJsonLine(measurement) : ToText(measurement)) << std::endl;
}

Status RunGrammar(const GrammarOptions& options) {
  std::shared_ptr<const Vocabulary> vocabulary;
  std::vector<GrammarCase> cases = GrammarCases();
  if (!options.recorded.empty()) {
    LAMINA_ASSIGN_OR_RETURN(RecordedTexts recorded, ReadRecordedTexts(options.recorded));
    vocabulary = recorded.vocabulary;
    cases = std::move(recorded.cases);
  } else if (options.tokenizer.empty()) {
    vocabulary = MadeUpVocabulary(options.vocab_size);
  } else {
    LAMINA_ASSIGN_OR_RETURN(const std::string path, FindModel(options.tokenizer));
    LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(path));
    vocabulary = Vocabulary::Of(*tokenizer, tokenizer->vocab_size());
  }
  for (const GrammarCase& test : cases) {
    LAMINA_ASSIGN_OR_RETURN(const GrammarSamples samples,
                            MeasureGrammar(test, vocabulary, options));
    const auto largest = [](const std::vector<double>& us) { return std::ranges::max(us); };
    ReportGrammar(test, "compile", samples.compile_us, {{"grammar_bytes", samples.grammar_bytes}},
                  *vocabulary, options.json);
    ReportGrammar(test, "first masks", samples.first_us,
                  {{"largest_us", largest(samples.first_us)}}, *vocabulary, options.json);
    ReportGrammar(test, "masks again", samples.again_us,
                  {{"largest_us", largest(samples.again_us)}}, *vocabulary, options.json);
  }
  return OkStatus();
}

}  // namespace

void RegisterBenchGrammar(CLI::App& app) {
  auto options = std::make_shared<GrammarOptions>();
  CLI::App* command = app.add_subcommand(
      "grammar", "Compiling what constrains an answer, and finding the tokens that may follow");
  command->footer("Example:\n  lamina bench grammar --tokenizer models/tiny-stories");
  command->add_option("--tokenizer", options->tokenizer,
                      "folder of a model; without it a vocabulary is made up");
  command->add_option("--vocab-size", options->vocab_size, "of the vocabulary that is made up")
      ->check(CLI::Range(300, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--recorded", options->recorded,
                   "vocabulary, schemas and texts of scripts/compare_masks.py instead")
      ->excludes("--tokenizer");
  command->add_option("--texts", options->num_texts, "texts that are drawn of each constraint")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_flag("--json", options->json, "one line of JSON for each case");
  OnRun(*command, "lamina bench grammar", [options] { return RunGrammar(*options); });
}

}  // namespace lamina
