// JSON schemas (draft 2020-12, and what the drafts before wrote otherwise) as parts of a grammar:
// JSON values of the schema. docs/structured_output.md has the keywords.
#pragma once

#include <nlohmann/json.hpp>

#include "base/status.h"
#include "grammar/grammar_builder.h"

namespace lamina {

// Every text of the part is a valid value. Properties are written in the schema's order.
// kInvalidArgument: the schema is wrong, or has a keyword that constrains values and is not
// supported; the message names it and its place.
Result<Fragment> AddJsonSchema(const nlohmann::ordered_json& schema, GrammarBuilder& builder);

}  // namespace lamina
