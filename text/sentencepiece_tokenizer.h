// The tokenizer of LLaMA-1/2 and its relatives: a SentencePiece model, and special tokens that
// SentencePiece itself does not look for in text.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "text/tokenizer.h"

namespace lamina {

// REQUIRES: DIR/tokenizer.model exists. Errors as LoadTokenizer.
Result<std::unique_ptr<Tokenizer>> LoadSentencePieceTokenizer(const std::string& dir);

}  // namespace lamina
