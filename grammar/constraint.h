// The constraints that a client can put on a text, and their compilation to a grammar.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "grammar/grammar.h"

namespace lamina {

enum class ConstraintKind {
  kChoice,      // one of `choices`
  kRegex,       // a text that matches `text` from end to end
  kGrammar,     // a text of the GBNF grammar `text`
  kJsonObject,  // any JSON object
  kJsonSchema,  // a JSON value of `schema`
};

struct Constraint {
  ConstraintKind kind = ConstraintKind::kJsonObject;
  std::string text = {};
  std::vector<std::string> choices = {};
  nlohmann::ordered_json schema = {};  // properties are written in its order
};

// What is refused before it is looked at.
inline constexpr size_t kMaxConstraintBytes = size_t{256} << 10;  // of a text, or of all choices

// kInvalidArgument: what is wrong with it or not supported, which limit it exceeds, or that no text
// satisfies it. Thread: any. The time is bounded by the limits of grammar.h: below a second.
Result<Grammar> CompileConstraint(const Constraint& constraint);

}  // namespace lamina
