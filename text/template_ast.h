// A parsed chat template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/template_value.h"

namespace lamina::chat {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  enum class Kind {
    kLiteral,    // literal
    kName,       // name
    kList,       // args
    kDict,       // args: key, value, key, value ...
    kAttribute,  // args[0].name
    kIndex,      // args[0][args[1]]
    kSlice,      // args[0][args[1]:args[2]:args[3]]; absent parts are nullptr
    kCall,       // args[0](args[1] ..., keywords)
    kFilter,     // args[0] | name(args[1] ..., keywords)
    kTest,       // args[0] is name(args[1] ...)
    kNot,        // not args[0]
    kNegate,     // - args[0]
    kBinary,     // args[0] name args[1]; name is an operator, "in", "not in", "and" or "or"
    kCondition,  // args[1] if args[0] else args[2] (nullptr: undefined)
  };
  Kind kind = Kind::kLiteral;
  int line = 1;
  int height = 1;  // of the tree below; bounds the evaluator's recursion
  std::string name;
  Value literal;
  std::vector<ExprPtr> args;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
};

struct Node;
using Block = std::vector<Node>;

struct Node {
  enum class Kind {
    kText,    // text
    kOutput,  // expr
    kIf,      // branches; an else branch has no condition
    kFor,     // for names in expr (if condition) body else otherwise
    // names[0] = expr, or names[0].names[1] = expr if into_attribute, or names = the parts of expr.
    kSet,
    kCapture,  // names[0] = what body puts out
    // names[0](names[1], ...), of which the last have defaults: puts out body when it is called.
    kMacro,
    kBreak,
    kContinue,
  };
  struct Branch {
    ExprPtr condition;
    Block body;
  };
  Kind kind = Kind::kText;
  int line = 1;
  std::string text;
  ExprPtr expr;
  ExprPtr condition;
  std::vector<std::string> names;
  bool into_attribute = false;
  std::vector<ExprPtr> defaults;
  std::vector<Branch> branches;
  Block body;
  Block otherwise;
};

// kInvalidArgument: "line N: what is wrong"; kUnimplemented: "line N: {% include %} is not
// supported".
Result<Block> Parse(std::string source);

}  // namespace lamina::chat
