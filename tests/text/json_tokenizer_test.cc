#include "text/json_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/clock.h"
#include "tests/support/golden_prompts.h"
#include "tests/support/paths.h"
#include "text/detokenizer.h"
#include "text/sentencepiece_tokenizer.h"

namespace lamina {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// tokenizer_json_golden.json was written with the tokenizers library.
const json& Golden() {
  static const json golden = [] {
    std::ifstream file(SourcePath("/tests/text/tokenizer_json_golden.json"));
    return json::parse(file);
  }();
  return golden;
}

json FileOf(const std::string& name) {
  for (const json& tokenizer : Golden()["tokenizers"]) {
    if (tokenizer["name"] == name) return tokenizer["file"];
  }
  ADD_FAILURE() << "no tokenizer " << name;
  return json::object();
}

std::unique_ptr<Tokenizer> Parse(const json& file, const json& config = json::object()) {
  auto tokenizer = ParseJsonTokenizer(file, config, "dir/tokenizer.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

Status ErrorOf(const json& file, const json& config = json::object()) {
  return ParseJsonTokenizer(file, config, "dir/tokenizer.json").status();
}

// What a client gets that reads token by token.
std::string Streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                     bool skip_special) {
  DetokenizerOptions options;
  options.skip_special_tokens = skip_special;
  Detokenizer detokenizer(tokenizer, options, {});
  std::string text;
  for (const TokenId id : ids) {
    const std::string piece = detokenizer.Push(id);
    EXPECT_TRUE(piece.empty() ||
                json(piece).dump(-1, ' ', false, json::error_handler_t::ignore) ==
                    json(piece).dump(-1, ' ', false, json::error_handler_t::replace))
        << "a broken character";
    text += piece;
  }
  return text + detokenizer.Finish();
}

constexpr std::string_view kReplaced = "\uFFFD";

// The text without U+FFFD, and how many of these it had.
std::pair<std::string, int> WithoutReplaced(std::string text) {
  int count = 0;
  for (size_t at; (at = text.find(kReplaced)) != std::string::npos; ++count)
    text.erase(at, kReplaced.size());
  return {text, count};
}

void ExpectDecodes(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special,
                   const std::string& expected) {
  EXPECT_EQ(tokenizer.Decode(ids, skip_special), expected);
  const std::string streamed = Streamed(tokenizer, ids, skip_special);
  const bool has_bytes = std::ranges::any_of(
      ids, [&](TokenId id) { return tokenizer.IdToPiece(id).starts_with("<0x"); });
  if (!has_bytes || expected.find(kReplaced) == std::string::npos) {
    EXPECT_EQ(streamed, expected);
    return;
  }
  // One wrong byte takes along those beside it in the library; a stream has sent them before.
  const auto [whole, replaced] = WithoutReplaced(expected);
  const auto [sent, replaced_in_stream] = WithoutReplaced(streamed);
  EXPECT_GT(replaced_in_stream, 0) << streamed;
  EXPECT_LE(replaced_in_stream, replaced) << streamed;
  size_t at = 0;  // of `whole`, whose characters are in `sent` in the same order
  for (const char byte : sent) at += at < whole.size() && whole[at] == byte ? 1 : 0;
  EXPECT_EQ(at, whole.size()) << streamed;
}

void ExpectAgrees(const Tokenizer& tokenizer, const json& golden,
                  const std::vector<std::string>& texts) {
  const std::vector<TokenId> before = golden["before"];
  ASSERT_EQ(golden["ids"].size(), texts.size());
  for (size_t i = 0; i < texts.size() && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(json(texts[i]).dump(-1, ' ', true));
    const std::vector<TokenId> ids = golden["ids"][i];
    EXPECT_EQ(tokenizer.Encode(texts[i], false).value(), ids);
    EXPECT_LE(tokenizer.MinTokens(texts[i]), static_cast<int64_t>(ids.size()));
    std::vector<TokenId> with_specials = before;
    with_specials.insert(with_specials.end(), ids.begin(), ids.end());
    EXPECT_EQ(tokenizer.Encode(texts[i], true).value(), with_specials);
    const json &kept = golden["kept"][i], &skipped = golden["skipped"][i];
    const std::string text = kept.is_null() ? texts[i] : kept.get<std::string>();
    ExpectDecodes(tokenizer, ids, false, text);
    ExpectDecodes(tokenizer, ids, true, skipped.is_null() ? text : skipped.get<std::string>());
  }
  for (const json& sequence : golden["sequences"]) {
    SCOPED_TRACE(sequence.dump(-1, ' ', true));
    ExpectDecodes(tokenizer, sequence[0], true, sequence[1]);
    ExpectDecodes(tokenizer, sequence[0], false, sequence[2]);
    if (::testing::Test::HasFailure()) return;
  }
}

class GoldenTokenizerTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTokenizerTest, Agrees) {
  const std::vector<std::string> texts = Golden()["texts"];
  ASSERT_EQ(texts.size(), 2000u);
  for (const json& golden : Golden()["tokenizers"]) {
    if (golden["name"] == GetParam()) ExpectAgrees(*Parse(golden["file"]), golden, texts);
  }
}

INSTANTIATE_TEST_SUITE_P(, GoldenTokenizerTest,
                         ::testing::Values("gpt2", "llama3", "qwen2", "llama2"));

TEST(JsonTokenizer, VariationsAgree) {
  const std::vector<std::string> all_texts = Golden()["texts"];
  for (const json& golden : Golden()["variations"]) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    json file = FileOf(golden["base"]);
    for (const auto& [key, value] : golden["changes"].items()) {
      (key.starts_with("model.") ? file["model"][key.substr(6)] : file[key]) = value;
    }
    std::vector<std::string> texts;
    const json& some = golden["texts"];
    for (size_t i = some["first"]; i < some["end"].get<size_t>(); i += some["step"].get<size_t>())
      texts.push_back(all_texts[i]);
    ExpectAgrees(*Parse(file), golden, texts);
    if (HasFailure()) return;
  }
}

// The same merges in both spellings of the file format.
TEST(JsonTokenizer, MergesAsStringsOrPairs) {
  json file = FileOf("gpt2");
  const std::vector<TokenId> ids = Parse(file)->Encode("the small house", false).value();
  for (json& merge : file["model"]["merges"]) {
    const std::string text = merge;
    merge = json::array({text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)});
  }
  EXPECT_EQ(Parse(file)->Encode("the small house", false).value(), ids);
}

// Text without a pre-tokenizer is cut at spaces where no merge reaches over them; here one does.
TEST(JsonTokenizer, MergesMayReachOverSpaces) {
  json file = {
      {"normalizer", {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}},
      {"model",
       {{"type", "BPE"},
        {"vocab", {{"a", 0}, {"b", 1}, {"\u2581", 2}, {"\u2581b", 3}, {"a\u2581", 4}}},
        {"merges", {"\u2581 b"}}}}};
  EXPECT_THAT(Parse(file)->Encode("a b a b", false).value(), ElementsAre(0, 3, 2, 0, 3));
  file["model"]["merges"] = {"a \u2581", "\u2581 b"};
  EXPECT_THAT(Parse(file)->Encode("a b a b", false).value(), ElementsAre(4, 1, 2, 4, 1));
}

TEST(JsonTokenizer, ATokenWithoutTextDoesNotStandForUnknownCharacters) {
  const json file = {
      {"model", {{"type", "BPE"}, {"vocab", {{"", 0}, {"a", 1}}}, {"merges", json::array()}}}};
  EXPECT_THAT(Parse(file)->Encode("aza", false).value(), ElementsAre(1, 1));
}

// The words are looked up by views into texts that are kept for them.
TEST(JsonTokenizer, SpellingsOfOneIdAreWordsEach) {
  json vocab = {{"x", 1}};
  for (int i = 0; i < 100; ++i) vocab["word" + std::string(40, 'a') + std::to_string(i)] = 0;
  const json file = {
      {"model",
       {{"type", "BPE"}, {"vocab", vocab}, {"ignore_merges", true}, {"merges", json::array()}}}};
  const std::unique_ptr<Tokenizer> tokenizer = Parse(file);
  for (int i = 0; i < 100; ++i) {
    EXPECT_THAT(tokenizer->Encode("word" + std::string(40, 'a') + std::to_string(i), false).value(),
                ElementsAre(0));
  }
}

TEST(JsonTokenizer, NormalizersThatMayShrinkATextWithoutEndSayNothingOfItsTokens) {
  json file = FileOf("gpt2");
  const json nfc = {{"type", "NFC"}};
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
  for (int i = 0; i < 40; ++i) file["normalizer"]["normalizers"].push_back(nfc);
  EXPECT_EQ(Parse(file)->MinTokens(std::string(1000, 'a')), 0);
  file["normalizer"] = {
      {"type", "Replace"}, {"pattern", {{"String", nullptr}, {"Regex", "a"}}}, {"content", "b"}};
  EXPECT_EQ(Parse(file)->MinTokens(std::string(1000, 'a')), 0);
}

struct Refusal {
  const char* name;
  const char* pointer;  // what of the file is replaced
  json value;
  const char* expected;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

class RefusedTokenizerTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedTokenizerTest, NamesFilePathValueAndWhatIsUnderstood) {
  json file = FileOf("llama3");
  file[json::json_pointer(GetParam().pointer)] = GetParam().value;
  const Status status = ErrorOf(file);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("dir/tokenizer.json: "));
  EXPECT_THAT(status.message(), HasSubstr(GetParam().expected));
}

const Refusal kRefusals[] = {
    {"Unigram", "/model/type", "Unigram",
     "model.type is \"Unigram\", which is not supported; understood is BPE"},
    {"WordPiece", "/model/type", "WordPiece", "tokenizer.model"},
    {"Suffix", "/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix is \"</w>\""},
    {"Prefix", "/model/continuing_subword_prefix", "##",
     "model.continuing_subword_prefix is \"##\""},
    {"Dropout", "/model/dropout", 0.1, "model.dropout is 0.1"},
    {"MergeOfStrangers", "/model/merges/3", "qqq zzz",
     "model.merges[3]: \"qqq\" is not in model.vocab"},
    {"MergeOfThree", "/model/merges/3", "a b c",
     "model.merges[3] is \"a b c\", expected two tokens"},
    {"MergeIsNumber", "/model/merges/3", 5, "model.merges[3] is 5"},
    {"Vocab", "/model/vocab", json::array(), "model.vocab is a list, expected an object"},
    {"VocabId", "/model/vocab/a", -1,
     "\"a\": dir/tokenizer.json: model.vocab is -1, expected an integer"},
    {"HugeId", "/model/vocab/a", 4000000000, "expected an integer from 0"},
    {"UnknownUnknown", "/model/unk_token", "<nothing>", "model.unk_token is \"<nothing>\""},
    {"Normalizer", "/normalizer", {{"type", "Precompiled"}}, "normalizer.type is \"Precompiled\""},
    {"NormalizerInSequence",
     "/normalizer",
     {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Nmt"}}}}},
     "normalizer.normalizers[1].type"},
    {"PreTokenizer",
     "/pre_tokenizer/pretokenizers/0",
     {{"type", "BertPreTokenizer"}},
     "pre_tokenizer.pretokenizers[0].type is \"BertPreTokenizer\""},
    {"AfterByteLevel",
     "/pre_tokenizer/pretokenizers/2",
     {{"type", "Digits"}},
     "pre_tokenizer.pretokenizers[2] is an object, which is not supported; nothing may"},
    {"Behavior", "/pre_tokenizer/pretokenizers/0/behavior", "Shuffled",
     "pretokenizers[0].behavior is \"Shuffled\""},
    {"Pattern",
     "/pre_tokenizer/pretokenizers/0/pattern",
     {{"Glob", "*"}},
     "pretokenizers[0].pattern is an object"},
    {"BrokenRegex", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "a(b",
     "pattern.Regex: the regular expression cannot be read"},
    {"Intersection", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "[a-z&&[^b]]",
     "pattern.Regex: the regular expression uses &&"},
    {"BackReference", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "(a)\\1", "uses \"\\1\""},
    {"PossessiveInterval", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\p{N}{1,3}+",
     "uses }+"},
    {"OpenInterval", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "a{,3}", "uses {,"},
    {"Verb", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "(*UCP)a", "uses \"(*\""},
    {"Processor",
     "/post_processor",
     {{"type", "BertProcessing"}},
     "post_processor.type is \"BertProcessing\""},
    {"TemplateWithoutText", "/post_processor/processors/1/single", json::array(),
     "single has the text 0 times"},
    {"Decoder", "/decoder", {{"type", "WordPiece"}}, "decoder.type is \"WordPiece\""},
    {"StripAtTheEnd",
     "/decoder",
     {{"type", "Sequence"},
      {"decoders", {{{"type", "Fuse"}}, {{"type", "Strip"}, {"content", " "}, {"stop", 1}}}}},
     "decoder.decoders[1].stop is 1"},
    {"AddedToken", "/added_tokens/0/content", 7, "added_tokens[0].content is 7, expected a string"},
    {"AddedId", "/added_tokens/0/id", "x", "added_tokens[0].id is \"x\""},
    {"NoModel", "/model", nullptr, "model is missing"},
};

INSTANTIATE_TEST_SUITE_P(, RefusedTokenizerTest, ::testing::ValuesIn(kRefusals),
                         [](const auto& info) { return info.param.name; });

TEST(JsonTokenizer, ConfigNamesBosAndEosAndMoreAddedTokens) {
  json file = FileOf("llama3");
  const TokenId next = file["added_tokens"].back()["id"].get<TokenId>() + 1;
  const json config = {{"bos_token", "<|begin_of_text|>"},
                       {"eos_token", {{"content", "<|eot_id|>"}}},
                       {"added_tokens_decoder",
                        {{std::to_string(next), {{"content", "<new>"}, {"special", true}}}}}};
  const auto tokenizer = Parse(file, config);
  EXPECT_EQ(tokenizer->TokenBytes(tokenizer->bos().value()), "<|begin_of_text|>");
  EXPECT_EQ(tokenizer->TokenBytes(tokenizer->eos().value()), "<|eot_id|>");
  EXPECT_THAT(tokenizer->Encode("<new>", false).value(), ElementsAre(next));
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{next}, true), "");
  EXPECT_EQ(tokenizer->vocab_size(), next + 1);
  EXPECT_THAT(
      ErrorOf(file, {{"added_tokens_decoder", {{"999999999", {{"content", "<far>"}}}}}}).message(),
      HasSubstr("dir/tokenizer_config.json: added_tokens_decoder"));
}

// As in the transformers library: the classes of Llama and Gemma make the template from these
// flags, others keep the file's.
TEST(JsonTokenizer, AddBosTokenOfALlamaDecides) {
  json config = {
      {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"tokenizer_class", "LlamaTokenizer"}};
  const json file = FileOf("llama2");
  const std::vector<TokenId> bare = Parse(file)->Encode("house", false).value();
  const auto expect = [&](std::vector<TokenId> before, std::vector<TokenId> after) {
    before.insert(before.end(), bare.begin(), bare.end());
    before.insert(before.end(), after.begin(), after.end());
    EXPECT_EQ(Parse(file, config)->Encode("house", true).value(), before) << config;
  };
  expect({1}, {});
  config["add_eos_token"] = true;
  expect({1}, {2});
  config["add_bos_token"] = false;
  expect({}, {2});
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  expect({1}, {});
}

// A folder with the given files.
class Folder {
 public:
  Folder()
      : dir_(::testing::TempDir() + "/lamina_json_tokenizer_" +
             std::to_string(std::random_device{}())) {
    std::filesystem::create_directories(dir_);
  }
  ~Folder() { std::filesystem::remove_all(dir_); }
  Folder& Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ + "/" + name) << text;
    return *this;
  }
  Folder& CopyModel() {
    std::filesystem::copy_file(SourcePath("/models/tiny-stories/tokenizer.model"),
                               dir_ + "/tokenizer.model");
    return *this;
  }
  const std::string& dir() const { return dir_; }

 private:
  std::string dir_;
};

TEST(LoadTokenizer, PrefersTokenizerJsonUnlessItCannotBeRead) {
  Folder both;
  both.CopyModel().Write("tokenizer.json", FileOf("qwen2").dump());
  EXPECT_EQ(LoadTokenizer(both.dir()).value()->Encode("small houses", false).value(),
            Parse(FileOf("qwen2"))->Encode("small houses", false).value());
  Folder unigram;
  unigram.CopyModel().Write("tokenizer.json", R"({"model":{"type":"Unigram"}})");
  const auto fallback = LoadTokenizer(unigram.dir());
  ASSERT_TRUE(fallback.ok()) << fallback.status();
  EXPECT_EQ(fallback.value()->vocab_size(), 1024);
}

// models/tiny-stories has a tokenizer.json, made of its tokenizer.model. LoadTokenizer chooses the
// former, so nothing may depend on which of them is read.
TEST(LoadTokenizer, BothTokenizersOfTinyStoriesAgree) {
  const std::string dir = testing::TinyStoriesDir();
  const auto pieces = LoadSentencePieceTokenizer(dir);
  const auto json = LoadJsonTokenizer(dir);
  ASSERT_TRUE(pieces.ok() && json.ok()) << pieces.status() << json.status();
  std::vector<std::string> texts = {"", " ", "  ", "a</s> b", "<s><s>a", "<unk>x</s>", "▁▁a ▁"};
  for (const auto& golden : testing::GoldenPrompts()) {
    EXPECT_EQ((*json)->Encode(golden.prompt, true).value(), golden.prompt_ids);
    texts.insert(texts.end(), {golden.prompt, golden.text});
  }
  std::mt19937_64 random(20261129);
  const std::vector<std::string> parts = {
      " ",    "  ",  "\n",   "\t",     "a",  "b",   "e",     "the",
      " the", "ing", "Once", ".",      "\"", "<s>", "</s>",  "é",
      "日本", "😀",   "▁",    "\u00A0", "7",  "<",   "<unk>", std::string(1, '\0')};
  for (int i = 0; i < 5000; ++i) {
    std::string& text = texts.emplace_back();
    for (uint64_t left = random() % 30; left > 0; --left) text += parts[random() % parts.size()];
  }
  for (const std::string& text : texts) {
    const std::vector<TokenId> ids = (*pieces)->Encode(text, true).value();
    EXPECT_EQ((*json)->Encode(text, true).value(), ids) << text;
    // <unk> is special only in tokenizer.json; SentencePiece writes it as " ⁇ ".
    if (std::ranges::find(ids, 0) == ids.end()) {
      EXPECT_EQ((*json)->Decode(ids, true), (*pieces)->Decode(ids, true)) << text;
    }
  }
  ASSERT_EQ((*json)->vocab_size(), (*pieces)->vocab_size());
  EXPECT_EQ((*json)->bos(), (*pieces)->bos());
  EXPECT_EQ((*json)->eos(), (*pieces)->eos());
  for (TokenId id = 1; id < (*json)->vocab_size(); ++id) {
    EXPECT_EQ((*json)->TokenBytes(id), (*pieces)->TokenBytes(id)) << id;
    EXPECT_EQ((*json)->IdToPiece(id), (*pieces)->IdToPiece(id)) << id;
  }
}

TEST(LoadTokenizer, SaysWhatToDoWithVocabAndMerges) {
  Folder folder;
  folder.Write("vocab.json", "{}").Write("merges.txt", "");
  const Status status = LoadTokenizer(folder.dir()).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("save_pretrained"));
}

double SecondsTo(const std::function<void()>& work) {
  const TimePoint start = Clock::now();
  work();
  return SecondsSince(start);
}

// Quadratic work would take minutes.
TEST(JsonTokenizer, OneLongWordTakesNoLongerThanManyShortOnes) {
  for (const char* name : {"gpt2", "llama2"}) {
    const auto tokenizer = Parse(FileOf(name));
    std::string word;
    std::mt19937 random(1);
    while (word.size() < 1'000'000) word += static_cast<char>('a' + random() % 26);
    for (const std::string& text : {word, std::string(1'000'000, 'e'), std::string(1'000'000, ' '),
                                    std::string(1'000'000, '\n')}) {
      size_t num_ids = 0;
      EXPECT_LT(SecondsTo([&] { num_ids = tokenizer->Encode(text, false).value().size(); }), 20)
          << name;
      EXPECT_GT(num_ids, 1000u);
    }
  }
}

json Replaced(const std::string& what, const std::string& with) {
  return {{"type", "Replace"}, {"pattern", {{"String", what}}}, {"content", with}};
}

json InSequence(const char* key, const std::vector<json>& steps) {
  return {{"type", "Sequence"}, {key, steps}};
}

// A model's file may make gigabytes of a short text: in one step, in many, or piece by piece.
TEST(JsonTokenizer, GrowthOfATextIsBounded) {
  const std::string some(1 << 10, 'b');
  std::string pieces;
  for (int i = 0; i < 5000; ++i) pieces += "cXX";
  const std::pair<json, std::string> cases[] = {
      {Replaced("a", std::string(64 << 10, 'b')), std::string(400, 'a')},
      {InSequence("normalizers", std::vector<json>(22, Replaced("a", "aa"))), "a"},
      {Replaced("a", some), std::string(5000, 'a')},
      {{{"type", "Prepend"}, {"prepend", some}}, pieces},
  };
  for (const auto& [normalizer, text] : cases) {
    json file = FileOf("gpt2");
    file["normalizer"] = normalizer;
    file["added_tokens"] = {{{"id", 100}, {"content", "XX"}, {"normalized", false}}};
    const auto tokenizer = Parse(file);
    const Status status = tokenizer->Encode(text, false).status();
    EXPECT_EQ(status.code(), StatusCode::kOutOfSpace) << normalizer.dump().substr(0, 80) << status;
    EXPECT_THAT(status.message(), HasSubstr("makes more than"));
  }
  json file = FileOf("gpt2");  // what real ones do fits, whatever the text's length
  file["normalizer"] = InSequence(
      "normalizers",
      {{{"type", "Prepend"}, {"prepend", "\u2581"}}, Replaced(" ", "\u2581"), {{"type", "NFKC"}}});
  EXPECT_TRUE(Parse(file)->Encode(std::string(1'000'000, ' '), false).ok());
  std::string ligatures;
  for (int i = 0; i < 1000; ++i) ligatures += "\ufdfa";
  EXPECT_TRUE(Parse(file)->Encode(ligatures, false).ok());
}

TEST(JsonTokenizer, ALateReplaceOfTheDecoderIsBounded) {
  json file = FileOf("llama2");
  file["decoder"] = InSequence("decoders", {Replaced("e", std::string(1 << 20, 'x'))});
  EXPECT_THAT(ErrorOf(file).message(), HasSubstr("makes more than"));
}

TEST(JsonTokenizer, LongAndVeryManyAddedTokensAreRefused) {
  const auto with_added = [](int count, size_t bytes) {
    json file = FileOf("gpt2");
    file["added_tokens"] = json::array();
    for (int i = 0; i < count; ++i) {
      std::string text = "<" + std::to_string(i) + ">";
      text.resize(std::max(text.size(), bytes), 'a');
      file["added_tokens"].push_back(
          {{"id", 1000 + i}, {"content", text}, {"normalized", false}, {"special", i % 2 == 0}});
    }
    return file;
  };
  EXPECT_THAT(ErrorOf(with_added(1, 30'000)).message(),
              HasSubstr("added_tokens[0]: the added token \"<0>aaa"));
  EXPECT_THAT(ErrorOf(with_added(1, 30'000)).message(),
              HasSubstr("has 30000 bytes, expected at most 1024"));
  EXPECT_THAT(ErrorOf(with_added(10'000, 1000)).message(), HasSubstr("in all"));
  std::unique_ptr<Tokenizer> many;
  EXPECT_LT(SecondsTo([&] { many = Parse(with_added(100'000, 8)); }), 20);
  std::string text;
  while (text.size() < 1'000'000) text += "<99999>a<9999";
  EXPECT_LT(SecondsTo([&] { EXPECT_TRUE(many->Encode(text, false).ok()); }), 20);
}

TEST(JsonTokenizer, HugeFilesPartsAreRefused) {
  const std::pair<const char*, json> cases[] = {
      {"/normalizer", InSequence("normalizers", std::vector<json>(200, {{"type", "NFC"}}))},
      {"/pre_tokenizer", InSequence("pretokenizers", std::vector<json>(200, {{"type", "Digits"}}))},
      {"/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "long"}}},
      {"/pre_tokenizer",
       InSequence("pretokenizers", std::vector<json>(20, {{"type", "Metaspace"}}))},
      {"/decoder", InSequence("decoders", std::vector<json>(200, Replaced("a", "b")))},
      {"/post_processor/processors/1/single/0/SpecialToken", {{"id", "many"}}},
  };
  for (const auto& [pointer, value] : cases) {
    json file = FileOf("llama3");
    file["post_processor"]["processors"][1]["special_tokens"]["many"] = {
        {"id", "many"}, {"ids", std::vector<int>(1000, 1)}, {"tokens", {"a"}}};
    file[json::json_pointer(pointer)] = value;
    const Status status = ErrorOf(file);
    EXPECT_FALSE(status.ok()) << pointer << value.dump().substr(0, 100);
    EXPECT_THAT(status.message(), HasSubstr("dir/tokenizer.json: "));
  }
  json file = FileOf("gpt2");
  file["model"]["vocab"][std::string(5000, 'a')] = 999;
  EXPECT_THAT(ErrorOf(file).message(), HasSubstr("has 5000 bytes, expected at most 4096"));
}

// A pattern from a file may backtrack without end: other tokens than the model was trained with
// would be worse than none.
TEST(JsonTokenizer, APatternThatGivesUpFailsTheText) {
  json file = FileOf("qwen2");
  file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(?:a+)+(?:a+)+b|\\s";
  const auto tokenizer = Parse(file);
  Status status;
  EXPECT_LT(SecondsTo([&] { status = tokenizer->Encode(std::string(4000, 'a'), false).status(); }),
            60);
  EXPECT_EQ(status.code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(status.message(), HasSubstr("regular expression"));
  EXPECT_TRUE(tokenizer->Encode("short text", false).ok());
}

}  // namespace
}  // namespace lamina
