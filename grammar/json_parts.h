// The parts of JSON (RFC 8259) in a grammar. Between the tokens of a value there may be one space,
// or a line end with spaces or tabs behind it. Nothing stands in front of a value or behind it.
// Escapes of surrogates come in pairs, so that every text can be decoded.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar_builder.h"

namespace lamina {

// Rules are made when they are first used. Borrows the builder.
class JsonParts {
 public:
  explicit JsonParts(GrammarBuilder& builder) : builder_(builder) {}

  Fragment Space();
  Fragment Value();      // any
  Fragment Object();     // any
  Fragment Array();      // any
  Fragment String();     // any
  Fragment Character();  // of a string
  Fragment Number();
  Fragment Integer();
  // A string whose text is none of these. It writes no character that need not be escaped by an
  // escape, so that each text is written in one way only.
  Fragment StringOtherThan(const std::vector<std::string>& texts);
  // The body in quotes.
  Fragment Quoted(Fragment body);
  // The texts of `items`, with a comma between two.
  Fragment Member(Fragment key, Fragment value);
  Fragment Comma();

 private:
  using Rule = GrammarBuilder::Rule;

  Fragment Named(std::optional<Rule>& rule, const char* name, Fragment (JsonParts::*body)());
  Fragment MakeSpace();
  Fragment MakeValue();
  Fragment MakeObject();
  Fragment MakeArray();
  Fragment MakeString();
  Fragment MakeCharacter();

  GrammarBuilder& builder_;
  std::optional<Rule> space_, value_, object_, array_, string_, character_;
};

// The literal texts, of which none has to be tried one by one: they share their beginnings.
Fragment AddChoices(std::span<const std::string> texts, GrammarBuilder& builder);

// A string as JSON, with no escape that need not be.
std::string JsonQuoted(std::string_view text);

}  // namespace lamina
