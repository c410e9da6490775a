// The tokenizer of LLaMA-1/2 and its relatives: a SentencePiece model, and special tokens that
// SentencePiece itself does not look for in text.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "text/sentencepiece_model.h"
#include "text/tokenizer.h"

namespace lamina {

// Reads DIR/tokenizer.model and tokenizer_config.json beside it. kUnimplemented if the model is of
// a kind that is not supported; kInvalidArgument if a file is broken; kOutOfSpace if it takes too
// much time or memory to prepare. Messages name the file. REQUIRES: DIR/tokenizer.model exists.
Result<std::unique_ptr<Tokenizer>> LoadSentencePieceTokenizer(const std::string& dir);

// Makes the tokenizer of a model and the content of a tokenizer_config.json, which messages name as
// `where`. kInvalidArgument and kOutOfSpace as above. REQUIRES: the model is checked.
Result<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(SentencePieceModel model,
                                                              const nlohmann::json& config,
                                                              const std::string& where);

}  // namespace lamina
