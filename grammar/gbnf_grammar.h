// Context-free grammars in GBNF, the notation of llama.cpp: rules `name ::= ...`, of which `root`
// is the whole text.
//
//   root  ::= "Yes" | answer+ [.!?]     # alternatives, classes, quantifiers * + ? {n} {n,} {n,m}
//   answer ::= [^\n\x00-\x1F]{1,20} ("," " "? | ".")
#pragma once

#include <string_view>

#include "base/status.h"
#include "grammar/grammar_builder.h"

namespace lamina {

// The rule `root`. kInvalidArgument: what is wrong, with its line.
Result<GrammarBuilder::Rule> AddGbnf(std::string_view text, GrammarBuilder& builder);

}  // namespace lamina
