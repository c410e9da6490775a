// A tokenizer whose tokens can be told by heart.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace lamina::testing {

// 'a' to 'z' are tokens 0 to 25, and the special ones follow from 26 on. If the first of these is
// "<s>", it is the beginning-of-sequence token, and put in front of texts.
std::unique_ptr<Tokenizer> LettersTokenizer(const std::vector<std::string>& special);

}  // namespace lamina::testing
