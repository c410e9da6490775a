// The fields of a request that constrain what its answers can be: those of OpenAI, vLLM, SGLang and
// llama.cpp, which say the same things under different names.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "api/field_reader.h"
#include "base/status.h"
#include "grammar/constraint.h"

namespace lamina {

struct RequestedConstraint {
  std::string field;  // that asks for it, for errors: "structured_outputs.regex"
  Constraint constraint;
  // Where the schema stands in the request's body, if it is no string. Properties are written in
  // the order of the body, which the fields do not have.
  std::optional<nlohmann::json::json_pointer> schema_at = {};
};

// nullopt if there is none, or an error, which the reader then has: a field of a wrong type, or
// more than one constraint.
std::optional<RequestedConstraint> ReadConstraint(FieldReader& reader);

// Grammar::ToBytes of it. kInvalidArgument: it is refused, see CompileConstraint. REQUIRES: `body`
// is what the fields were parsed from. Thread: any.
Result<std::string> CompileRequested(const RequestedConstraint& requested, const std::string& body);

}  // namespace lamina
