// A tokenizer for models that have none: each byte is a token. For modelled devices, which need
// prompts of some length and no language.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "text/tokenizer.h"

namespace lamina {

// Byte b is token 3 + b, as the byte tokens of LLaMA's vocabulary; every other token reads as "?".
// `vocab_size`, `bos` and `eos` are the model's. kInvalidArgument if its vocabulary is too small
// for that.
Result<std::unique_ptr<Tokenizer>> MakeByteTokenizer(int64_t vocab_size, std::optional<TokenId> bos,
                                                     std::optional<TokenId> eos);

}  // namespace lamina
