#include "text/tokenizer.h"

#include <filesystem>

#include "base/log.h"
#include "gguf/gguf_model.h"
#include "text/gguf_tokenizer.h"
#include "text/json_tokenizer.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/utf8.h"

namespace lamina {

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
  const std::string& dir = path;
  const auto has = [&](const char* name) {
    std::error_code ignored;  // a file that cannot be looked at counts as absent
    return std::filesystem::exists(std::filesystem::path(dir) / name, ignored);
  };
  if (has("tokenizer.json")) {
    auto tokenizer = LoadJsonTokenizer(dir);
    if (tokenizer.ok() || !has("tokenizer.model")) return tokenizer;
    LAMINA_LOG_WARN("{}; tokenizer.model is used instead", tokenizer.status().message());
  }
  if (has("tokenizer.model")) return LoadSentencePieceTokenizer(dir);
  if (has("vocab.json") && has("merges.txt")) {
    return Unimplemented(dir +
                         " has its tokenizer as vocab.json and merges.txt; make a tokenizer.json "
                         "of them with Python: " +
                         "transformers.AutoTokenizer.from_pretrained(\"" + dir +
                         "\").save_pretrained(\"" + dir + "\")");
  }
  return NotFound(dir + ": there is no tokenizer.json or tokenizer.model in this folder");
}

}  // namespace lamina
