// Tokenizers that come as tokenizer.json, the format of the Hugging Face tokenizers library:
// byte-pair encoding, on bytes (GPT-2, OPT, Llama-3, Qwen2 and others) or on characters (Llama-2
// and others). What the file describes is done, whatever model it belongs to.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "text/tokenizer.h"

namespace lamina {

// REQUIRES: DIR/tokenizer.json exists. Errors as LoadTokenizer.
Result<std::unique_ptr<Tokenizer>> LoadJsonTokenizer(const std::string& dir);

// The same from what the files hold; `config` is tokenizer_config.json, an empty object if there is
// none. `path` stands in messages.
Result<std::unique_ptr<Tokenizer>> ParseJsonTokenizer(const nlohmann::json& tokenizer,
                                                      const nlohmann::json& config,
                                                      const std::string& path);

}  // namespace lamina
