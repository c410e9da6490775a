// Splits a chat template into text, blocks, outputs and the tokens inside them, with Jinja's rules
// for white space (trim_blocks and lstrip_blocks on).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace lamina::chat {

struct Token {
  enum class Kind {
    kText,
    kOutputBegin,
    kOutputEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind = Kind::kEnd;
  std::string text;  // kText, kString: the content; kName, kOperator: its spelling
  int64_t integer = 0;
  double real = 0;
  int line = 1;
};

// The last token is kEnd. kInvalidArgument: "line N: ...".
Result<std::vector<Token>> Tokenize(std::string source);

}  // namespace lamina::chat
