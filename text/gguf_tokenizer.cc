#include "text/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "gguf/gguf_model.h"
#include "gguf/gguf_vocabulary.h"
#include "text/json_tokenizer.h"
#include "text/sentencepiece_model.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/utf8.h"

namespace lamina {
namespace {

using nlohmann::json;
using Kind = GgufVocabulary::Kind;

// tokenizer.ggml.model
constexpr std::string_view kSentencePieceModel = "llama", kByteLevelModel = "gpt2";

bool IsUtf8(std::string_view text) {
  size_t length = 0;
  for (; !text.empty(); text.remove_prefix(length)) {
    if (ClassifyUtf8(text, &length) != Utf8Prefix::kComplete) return false;
  }
  return true;
}

// The names of tokens in a tokenizer_config.json, "" for one that the model does not have.
struct NamedToken {
  const char* name;
  std::string_view text;
};
std::vector<NamedToken> NamedTokens(const GgufVocabulary& vocabulary) {
  return {{"bos_token", vocabulary.TextOf(vocabulary.bos)},
          {"eos_token", vocabulary.TextOf(vocabulary.eos)},
          {"unk_token", vocabulary.TextOf(vocabulary.unknown)},
          {"pad_token", vocabulary.TextOf(vocabulary.padding)}};
}

// What tokenizer_config.json would say of the tokens around a text.
json ConfigOf(const GgufVocabulary& vocabulary, bool add_bos) {
  // Of this class the two flags decide.
  json config = {{"tokenizer_class", "LlamaTokenizer"},
                 {"add_bos_token", vocabulary.add_bos.value_or(add_bos)},
                 {"add_eos_token", vocabulary.add_eos.value_or(false)}};
  for (const auto& [name, text] : NamedTokens(vocabulary)) {
    if (!text.empty()) config[name] = std::string(text);
  }
  return config;
}

// Tokens that are looked for in a text before anything else.
bool IsAdded(Kind kind) { return kind == Kind::kControl || kind == Kind::kUserDefined; }

// ---- "llama": SentencePiece ----

// The pieces of a BPE model have the negated numbers of their merges as scores, those of a unigram
// model logarithms.
bool IsUnigram(const GgufVocabulary& vocabulary) {
  for (size_t id = 0; id < vocabulary.scores.size(); ++id) {
    const float score = vocabulary.scores[id];
    if (vocabulary.KindOf(static_cast<TokenId>(id)) == Kind::kNormal && score != std::floor(score))
      return true;
  }
  return false;
}

Status CheckSentencePiece(const GgufVocabulary& vocabulary, const std::string& path) {
  for (const auto& [key, length] :
       {std::pair("scores", vocabulary.scores.size()), {"token_type", vocabulary.kinds.size()}}) {
    if (length == 0)
      return InvalidArgument(
          fmt::format("{}: a tokenizer of kind \"llama\" needs tokenizer.ggml.{}, which is missing",
                      path, key));
  }
  if (!IsUnigram(vocabulary)) return OkStatus();
  return Unimplemented(path +
                       ": tokenizer.ggml.scores are those of a SentencePiece model of kind "
                       "unigram; only BPE is supported");
}

// REQUIRES: CheckSentencePiece is ok.
Result<std::unique_ptr<Tokenizer>> MakeSentencePiece(const GgufVocabulary& vocabulary,
                                                     const std::string& path) {
  SentencePieceModel model;
  json added = json::object();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string text(vocabulary.tokens[id]);
    const Kind kind = vocabulary.kinds[id];
    model.pieces.push_back({text, vocabulary.scores[id],
                            static_cast<SentencePieceModel::Type>(static_cast<int>(kind))});
    model.byte_fallback |= kind == Kind::kByte;
    if (IsAdded(kind)) added[std::to_string(id)] = text;
  }
  model.bos_id = vocabulary.bos.value_or(-1);
  model.eos_id = vocabulary.eos.value_or(-1);
  model.add_dummy_prefix = vocabulary.add_space_prefix.value_or(true);
  model.remove_extra_whitespaces = vocabulary.remove_extra_whitespaces.value_or(false);
  LAMINA_RETURN_IF_ERROR(model.Check().WithContext(path + ": tokenizer.ggml.tokens"));
  json config = ConfigOf(vocabulary, /*add_bos=*/true);
  config["added_tokens_decoder"] = std::move(added);
  return MakeSentencePieceTokenizer(std::move(model), config, path);
}

// ---- "gpt2": byte-pair encoding ----

// The patterns are those of the models' own tokenizer.json files.
constexpr const char* kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekkenWords =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr const char* kGpt4oWords =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// How the models of one name divide text into words.
struct PreTokenizerOf {
  std::string_view name;              // tokenizer.ggml.pre
  std::vector<const char*> patterns;  // each divides what those before it have left
  bool nfc = false;                   // text is normalized first
  bool ignore_merges = false;         // a word that is a token is not put together of its parts
  bool add_bos = false;               // unless the file says otherwise
};

const std::vector<PreTokenizerOf>& PreTokenizers() {
  static const std::vector<PreTokenizerOf> all = [] {
    const std::vector<const char*> gpt2 = {kGpt2Words}, llama3 = {kLlama3Words},
                                   qwen2 = {kQwen2Words}, digits_alone = {R"(\p{N})", kGpt2Words};
    return std::vector<PreTokenizerOf>{
        {"gpt-2", gpt2},
        {"llama-bpe", llama3, false, true, true},
        {"llama3", llama3, false, true, true},
        {"llama-v3", llama3, false, true, true},
        {"qwen2", qwen2, true},
        {"deepseek-r1-qwen", qwen2, true},
        {"tekken", {kTekkenWords}, false, true, true},
        {"gpt-4o", {kGpt4oWords}},
        {"smollm", digits_alone},
        {"starcoder", digits_alone},
        {"refact", digits_alone},  // Granite's
        {"olmo", gpt2},
        {"dbrx", llama3},  // Phi-4's and OLMo 2's
        // Of files that name no pre-tokenizer.
        {"default", {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Words, R"(\p{N}+)", R"([0-9][0-9][0-9])"}},
    };
  }();
  return all;
}

// The name that the file gives its pre-tokenizer.
std::string_view PreTokenizerName(const GgufVocabulary& vocabulary) {
  return vocabulary.pre.empty() ? "default" : vocabulary.pre;
}

// Null if it is not known.
const PreTokenizerOf* FindPreTokenizer(const GgufVocabulary& vocabulary) {
  const auto& all = PreTokenizers();
  const auto found = std::ranges::find(all, PreTokenizerName(vocabulary), &PreTokenizerOf::name);
  return found == all.end() ? nullptr : &*found;
}

std::string PreTokenizerNames() {
  std::string names;
  for (const PreTokenizerOf& known : PreTokenizers())
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  return names;
}

Status CheckByteLevel(const GgufVocabulary& vocabulary, const std::string& path) {
  if (FindPreTokenizer(vocabulary) != nullptr) return OkStatus();
  return Unimplemented(fmt::format("{}: tokenizer.ggml.pre is \"{}\", expected one of {}", path,
                                   Shortened(std::string(PreTokenizerName(vocabulary)), 80),
                                   PreTokenizerNames()));
}

json PreTokenizerJson(const PreTokenizerOf& pre) {
  json steps = json::array();
  for (const char* pattern : pre.patterns) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

// The "model" and "added_tokens" of a tokenizer.json.
Status AddVocabulary(const GgufVocabulary& vocabulary, const std::string& path, json& file) {
  json vocab = json::object(), added = json::array(), merges = json::array();
  size_t count = 0;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string text(vocabulary.tokens[id]);
    const Kind kind = vocabulary.KindOf(static_cast<TokenId>(id));
    // Converters fill a vocabulary up to the width of the model with made-up tokens.
    if (kind == Kind::kUnused) continue;
    if (!IsUtf8(text))
      return InvalidArgument(fmt::format("{}: tokenizer.ggml.tokens[{}] is not UTF-8", path, id));
    if (IsAdded(kind)) {
      added.push_back({{"id", id},
                       {"content", text},
                       {"special", kind == Kind::kControl},
                       {"normalized", false}});
      continue;
    }
    vocab[text] = id;
    if (vocab.size() != ++count)
      return InvalidArgument(fmt::format("{}: tokenizer.ggml.tokens[{}] is there twice", path, id));
  }
  for (const std::string_view merge : vocabulary.merges) {
    if (!IsUtf8(merge))
      return InvalidArgument(path + ": tokenizer.ggml.merges has an entry that is not UTF-8");
    merges.push_back(std::string(merge));
  }
  file["model"] = {{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", std::move(merges)}};
  file["added_tokens"] = std::move(added);
  return OkStatus();
}

// REQUIRES: CheckByteLevel is ok.
Result<std::unique_ptr<Tokenizer>> MakeByteLevel(const GgufVocabulary& vocabulary,
                                                 const std::string& path) {
  const PreTokenizerOf* const pre = FindPreTokenizer(vocabulary);
  json file = json::object();
  LAMINA_RETURN_IF_ERROR(AddVocabulary(vocabulary, path, file));
  if (pre->ignore_merges) file["model"]["ignore_merges"] = true;
  if (pre->nfc) file["normalizer"] = {{"type", "NFC"}};
  file["pre_tokenizer"] = PreTokenizerJson(*pre);
  file["decoder"] = {{"type", "ByteLevel"}};
  return ParseJsonTokenizer(file, ConfigOf(vocabulary, pre->add_bos), path);
}

Status CheckKind(const GgufVocabulary& vocabulary, const std::string& path) {
  if (vocabulary.model == kSentencePieceModel) return CheckSentencePiece(vocabulary, path);
  if (vocabulary.model == kByteLevelModel) return CheckByteLevel(vocabulary, path);
  return Unimplemented(fmt::format(
      "{}: tokenizer.ggml.model is \"{}\", expected llama (SentencePiece) or gpt2 (BPE on bytes)",
      path, Shortened(std::string(vocabulary.model), 80)));
}

}  // namespace

Status CheckGgufTokenizer(const std::string& path) {
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<GgufModel> file, GgufModel::Open(path));
  LAMINA_ASSIGN_OR_RETURN(const GgufVocabulary vocabulary, GgufVocabulary::Read(*file));
  return CheckKind(vocabulary, path);
}

Result<std::unique_ptr<Tokenizer>> LoadGgufTokenizer(const std::string& path) {
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<GgufModel> file, GgufModel::Open(path));
  LAMINA_ASSIGN_OR_RETURN(const GgufVocabulary vocabulary, GgufVocabulary::Read(*file));
  LAMINA_RETURN_IF_ERROR(CheckKind(vocabulary, path));
  return vocabulary.model == kSentencePieceModel ? MakeSentencePiece(vocabulary, path)
                                                 : MakeByteLevel(vocabulary, path);
}

Result<std::unique_ptr<ChatTemplate>> LoadGgufChatTemplate(const std::string& path) {
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<GgufModel> file, GgufModel::Open(path));
  LAMINA_ASSIGN_OR_RETURN(const GgufVocabulary vocabulary, GgufVocabulary::Read(*file));
  if (!vocabulary.chat_template)
    return NotFound(path + ": the model has no chat template (tokenizer.chat_template)");
  ChatTemplate::SpecialTokens special;
  for (const auto& [name, text] : NamedTokens(vocabulary)) special[name] = std::string(text);
  auto parsed = ChatTemplate::Parse(std::string(*vocabulary.chat_template), std::move(special));
  if (!parsed.ok()) return parsed.status().WithContext(path + ": tokenizer.chat_template");
  return parsed;
}

}  // namespace lamina
