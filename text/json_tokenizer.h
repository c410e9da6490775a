// Tokenizers that come as tokenizer.json, the format of the Hugging Face tokenizers library. Only
// byte-pair encoding is read, on bytes (GPT-2, OPT, Llama-3, Qwen2 and others) or on characters
// (Llama-2 and others). The file alone decides what is done; no model is known by name.
//
// A text passes through the file's parts in this order: added tokens are taken out
// (added_tokens.h), the rest is normalized (normalizer.h) and divided into words (pre_tokenizer.h),
// each word is encoded (ranked_bpe.h), and the post-processor puts tokens around the whole
// (template_processor.h). token_decoder.h makes text of tokens again.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "text/tokenizer.h"

namespace lamina {

// Reads DIR/tokenizer.json, and DIR/tokenizer_config.json if there is one. Returns the codes of
// LoadTokenizer; kNotFound: there is no tokenizer.json.
Result<std::unique_ptr<Tokenizer>> LoadJsonTokenizer(const std::string& dir);

// Makes the tokenizer from the parsed files. `config` is the content of tokenizer_config.json, or
// an empty object if there is none. `path` is how messages name tokenizer.json.
Result<std::unique_ptr<Tokenizer>> ParseJsonTokenizer(const nlohmann::json& tokenizer,
                                                      const nlohmann::json& config,
                                                      const std::string& path);

}  // namespace lamina
