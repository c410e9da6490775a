#include "text/tokenizer.h"

#include <filesystem>

#include "base/log.h"
#include "gguf/gguf_model.h"
#include "text/gguf_tokenizer.h"
#include "text/json_tokenizer.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/utf8.h"

namespace lamina {
namespace {

// What a folder has its tokenizer in; one of them at least.
struct TokenizerFiles {
  bool json = false;           // tokenizer.json, which comes first
  bool sentencepiece = false;  // tokenizer.model
};

Result<TokenizerFiles> FindTokenizerFiles(const std::string& dir) {
  const auto has = [&](const char* name) {
    std::error_code ignored;  // a file that cannot be looked at counts as absent
    return std::filesystem::exists(std::filesystem::path(dir) / name, ignored);
  };
  const TokenizerFiles files = {has("tokenizer.json"), has("tokenizer.model")};
  if (files.json || files.sentencepiece) return files;
  if (has("vocab.json") && has("merges.txt")) {
    return Unimplemented(dir +
                         " has its tokenizer as vocab.json and merges.txt; make a tokenizer.json "
                         "of them with Python: " +
                         "transformers.AutoTokenizer.from_pretrained(\"" + dir +
                         "\").save_pretrained(\"" + dir + "\")");
  }
  return NotFound(dir + ": there is no tokenizer.json or tokenizer.model in this folder");
}

}  // namespace

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool skip_special) const {
  DecodeState state;
  std::string text;
  for (const TokenId id : ids) Append(state, id, skip_special, text);
  Finish(state, text);
  return text;
}

void Tokenizer::Finish(DecodeState& state, std::string& text) const {
  TakeAllUtf8(state.incomplete, text);
}

Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path) {
  if (IsGgufPath(path)) return LoadGgufTokenizer(path);
  LAMINA_ASSIGN_OR_RETURN(const TokenizerFiles files, FindTokenizerFiles(path));
  if (files.json) {
    auto tokenizer = LoadJsonTokenizer(path);
    if (tokenizer.ok() || !files.sentencepiece) return tokenizer;
    LAMINA_LOG_WARN("{}; tokenizer.model is used instead", tokenizer.status().message());
  }
  return LoadSentencePieceTokenizer(path);
}

Status CheckTokenizer(const std::string& path) {
  return IsGgufPath(path) ? CheckGgufTokenizer(path) : FindTokenizerFiles(path).status();
}

}  // namespace lamina
