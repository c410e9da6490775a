// The tokenizer and the chat template of a model in a GGUF file.
//
// tokenizer.ggml.model says of which kind it is: "llama" is a SentencePiece model of kind BPE, and
// "gpt2" is byte-pair encoding on bytes, as a tokenizer.json has it. How the latter divides text
// into words is a name there, tokenizer.ggml.pre, and not a regular expression: those of the table
// in gguf_tokenizer.cc are known.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lamina {

// Errors of LoadTokenizer. kUnimplemented names the kind or the pre-tokenizer that is not known.
Result<std::unique_ptr<Tokenizer>> LoadGgufTokenizer(const std::string& path);

// As LoadGgufTokenizer, up to where the tokenizer would be made of the tokens: ok if the file has
// one of a kind that is known.
Status CheckGgufTokenizer(const std::string& path);

// kNotFound if the file has no tokenizer.chat_template; otherwise errors of ChatTemplate::Load.
Result<std::unique_ptr<ChatTemplate>> LoadGgufChatTemplate(const std::string& path);

}  // namespace lamina
