#include "text/infill.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "gguf/gguf_model.h"
#include "gguf/gguf_vocabulary.h"

namespace lamina {
namespace {

struct Spelling {
  const char* prefix;
  const char* suffix;
  const char* middle;  // nullptr: there is none, and the suffix comes first
};

constexpr Spelling kSpellings[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},     // Qwen2.5-Coder, CodeGemma
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},           // StarCoder, Granite, SmolLM
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},           // SantaCoder
    {"▁<PRE>", "▁<SUF>", "▁<MID>"},                             // Code Llama
    {"<PRE>", "<SUF>", "<MID>"},                                // its converted files
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},     // DeepSeek-Coder
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},  // GLM
    {"[PREFIX]", "[SUFFIX]", nullptr},                          // Codestral
};

constexpr const char* kEnds[] = {"▁<EOT>",    "<EOT>",        "<|fim_pad|>",
                                 "<fim_pad>", "<|file_sep|>", "<|file_separator|>"};

constexpr std::string_view kMarker = "\u263A";  // text that nobody begins with
constexpr std::string_view kSpacePiece = "\u2581";

}  // namespace

std::vector<TokenId> InfillFormat::Join(std::span<const TokenId> before,
                                        std::span<const TokenId> behind) const {
  std::vector<TokenId> prompt;
  prompt.reserve(before.size() + behind.size() + 3);
  const auto add = [&](TokenId mark, std::span<const TokenId> text) {
    prompt.push_back(mark);
    prompt.insert(prompt.end(), text.begin(), text.end());
  };
  if (suffix_first) {
    add(suffix, behind);
    add(prefix, before);
  } else {
    add(prefix, before);
    add(suffix, behind);
  }
  if (middle) prompt.push_back(*middle);
  return prompt;
}

std::optional<InfillFormat> FindInfillFormat(const Tokenizer& tokenizer) {
  std::map<std::string, TokenId, std::less<>> found;  // all that is looked for
  for (const Spelling& one : kSpellings) {
    for (const char* text : {one.prefix, one.suffix, one.middle}) {
      if (text != nullptr) found.emplace(text, -1);
    }
  }
  for (const char* text : kEnds) found.emplace(text, -1);
  for (TokenId token = 0; token < tokenizer.vocab_size(); ++token) {
    const auto looked_for = found.find(tokenizer.IdToPiece(token));
    if (looked_for != found.end()) looked_for->second = token;
  }
  const auto has = [&](const char* text) {
    return text == nullptr || found.find(text)->second >= 0;
  };
  const auto* const spelling = std::ranges::find_if(kSpellings, [&](const Spelling& one) {
    return has(one.prefix) && has(one.suffix) && has(one.middle);
  });
  if (spelling == std::end(kSpellings)) return std::nullopt;
  InfillFormat format{found.find(spelling->prefix)->second,
                      found.find(spelling->suffix)->second,
                      std::nullopt,
                      spelling->middle == nullptr,
                      {}};
  if (spelling->middle != nullptr) format.middle = found.find(spelling->middle)->second;
  for (const char* text : kEnds) {
    if (has(text)) format.ends.push_back(found.find(text)->second);
  }
  return format;
}

Result<std::optional<InfillFormat>> LoadInfillFormat(const std::string& path,
                                                     const Tokenizer& tokenizer) {
  std::optional<InfillFormat> format = FindInfillFormat(tokenizer);
  if (!IsGgufPath(path)) return format;
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<GgufModel> file, GgufModel::Open(path));
  LAMINA_ASSIGN_OR_RETURN(const GgufVocabulary vocabulary, GgufVocabulary::Read(*file));
  if (!vocabulary.infill_prefix || !vocabulary.infill_suffix || !vocabulary.infill_middle)
    return format;
  InfillFormat named{
      *vocabulary.infill_prefix, *vocabulary.infill_suffix, vocabulary.infill_middle, false, {}};
  if (format) named.ends = std::move(format->ends);
  return std::optional(std::move(named));
}

Result<std::vector<TokenId>> EncodeContinuation(const Tokenizer& tokenizer, std::string_view text) {
  LAMINA_ASSIGN_OR_RETURN(const std::vector<TokenId> marker, tokenizer.Encode(kMarker, false));
  const bool puts_space =
      !marker.empty() && tokenizer.IdToPiece(marker.front()).starts_with(kSpacePiece);
  if (!puts_space) return tokenizer.Encode(text, false);
  LAMINA_ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                          tokenizer.Encode(std::string(kMarker) + std::string(text), false));
  if (tokens.size() < marker.size() || !std::equal(marker.begin(), marker.end(), tokens.begin()))
    return tokenizer.Encode(text, false);
  tokens.erase(tokens.begin(), tokens.begin() + std::ssize(marker));
  return tokens;
}

}  // namespace lamina
