#include "grammar/constraint.h"

#include <utility>

#include "grammar/gbnf_grammar.h"
#include "grammar/grammar_builder.h"
#include "grammar/json_parts.h"
#include "grammar/json_schema.h"
#include "grammar/regex_grammar.h"
#include "text/utf8.h"

namespace lamina {
namespace {

Status CheckSize(const Constraint& constraint) {
  size_t bytes = constraint.text.size();
  for (const std::string& choice : constraint.choices) bytes += choice.size();
  if (bytes <= kMaxConstraintBytes) return OkStatus();
  return InvalidArgument("the constraint has " + std::to_string(bytes) + " bytes; at most " +
                         std::to_string(kMaxConstraintBytes) + " are possible");
}

Result<Fragment> AddConstraint(const Constraint& constraint, GrammarBuilder& builder) {
  switch (constraint.kind) {
    case ConstraintKind::kChoice: return AddChoices(constraint.choices, builder);
    case ConstraintKind::kRegex: return AddRegex(constraint.text, {}, builder);
    case ConstraintKind::kGrammar: {
      LAMINA_ASSIGN_OR_RETURN(const GrammarBuilder::Rule root, AddGbnf(constraint.text, builder));
      return builder.Call(root);
    }
    case ConstraintKind::kJsonObject: return JsonParts(builder).Object();
    case ConstraintKind::kJsonSchema: return AddJsonSchema(constraint.schema, builder);
  }
  return InternalError("a constraint of no kind");
}

}  // namespace

Result<Grammar> CompileConstraint(const Constraint& constraint) {
  LAMINA_RETURN_IF_ERROR(CheckSize(constraint));
  GrammarBuilder builder;
  const GrammarBuilder::Rule root = builder.DeclareRule("root");
  const Result<Fragment> body = AddConstraint(constraint, builder);
  // A part that was cut short may be wrong in other ways too.
  if (builder.is_full()) return std::move(builder).Finish(root);
  LAMINA_RETURN_IF_ERROR(body.status());
  builder.DefineRule(root, body.value());
  return std::move(builder).Finish(root);
}

}  // namespace lamina
