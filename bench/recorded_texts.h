// Texts that programs beside lamina are measured with too: a vocabulary, and schemas with texts of
// its tokens. scripts/compare_masks.py writes them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "grammar/constraint.h"
#include "grammar/vocabulary.h"

namespace lamina {

struct GrammarCase {
  std::string name;
  Constraint constraint;
  std::vector<std::vector<TokenId>> texts = {};  // none: they are drawn from what masks allow
};

struct RecordedTexts {
  std::shared_ptr<const Vocabulary> vocabulary;
  std::vector<GrammarCase> cases;
};

// Reads {"tokens": [bytes of each token in hexadecimal digits, "" for special ones], "cases":
// [{"name", "schema": JSON as text, "texts": [[token ids]]}]}. kInvalidArgument and kNotFound name
// the file.
Result<RecordedTexts> ReadRecordedTexts(const std::string& path);

}  // namespace lamina
