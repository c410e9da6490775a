#include "frontend/text/tokenizer.h"

#include <filesystem>

#include "frontend/text/sentencepiece_tokenizer.h"
#include "frontend/text/utf8.h"

namespace lamina {

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool skip_special) const {
  DecodeState state;
  std::string text;
  for (const TokenId id : ids) Append(state, id, skip_special, text);
  TakeAllUtf8(state.incomplete, text);
  return text;
}

Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& dir) {
  const std::filesystem::path folder(dir);
  std::error_code error;
  if (std::filesystem::exists(folder / "tokenizer.model", error)) return LoadSentencePieceTokenizer(dir);
  if (std::filesystem::exists(folder / "tokenizer.json", error)) {
    return Unimplemented((folder / "tokenizer.json").string() +
                         ": this version reads SentencePiece tokenizers only; it needs a tokenizer.model in the same folder");
  }
  return NotFound(dir + ": there is no tokenizer.model in this folder");
}

}  // namespace lamina
