// The "post_processor" of a tokenizer.json: the tokens that are put around a text.
#pragma once

#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/json_node.h"

namespace lamina {

// Thread: any; immutable.
class TemplateProcessor {
 public:
  TemplateProcessor() = default;
  TemplateProcessor(std::optional<TokenId> bos, std::optional<TokenId> eos);

  // What `node`, the value of "post_processor", describes for one text: TemplateProcessing,
  // ByteLevel (adds nothing), Sequence of such. kUnimplemented: another kind; kInvalidArgument.
  static Result<TemplateProcessor> Read(const JsonNode& node);

  const std::vector<TokenId>& before() const { return before_; }
  const std::vector<TokenId>& after() const { return after_; }

 private:
  Status Add(const JsonNode& node, int depth);
  Status AddTemplate(const JsonNode& node);

  std::vector<TokenId> before_, after_;
};

}  // namespace lamina
