#include "text/template_expressions.h"

#include <algorithm>

namespace lamina::chat {
namespace {

using Kind = Token::Kind;

// Nesting of blocks and expressions; the parser and the evaluator recurse this deep, several frames
// each. Real templates stay below 20.
constexpr int kMaxDepth = 150;

// Height of one expression's tree. A chain such as a + b + c + ... is as high as it is long.
constexpr int kMaxHeight = 400;

}  // namespace

std::string Spelling(const Token& token) {
  switch (token.kind) {
    case Kind::kBlockEnd: return "%}";
    case Kind::kOutputEnd: return "}}";
    case Kind::kEnd: return "the end of the template";
    case Kind::kString: return "a string";
    default: return "'" + token.text + "'";
  }
}

const Token& ExpressionParser::Next() {
  const Token& token = Peek();
  at_ = std::min(at_ + 1, tokens_.size() - 1);
  return token;
}

void ExpressionParser::Fail(const std::string& message, StatusCode code) {
  if (error_.ok()) error_ = Status(code, "line " + std::to_string(Peek().line) + ": " + message);
  at_ = tokens_.size() - 1;
}

void ExpressionParser::Expect(std::string_view op) {
  if (!TakeOperator(op)) Fail("expected '" + std::string(op) + "' but found " + Spelling(Peek()));
}

void ExpressionParser::ExpectKind(Kind kind, const char* what) {
  if (Peek().kind != kind)
    return Fail(std::string("expected ") + what + " but found " + Spelling(Peek()));
  Next();
}

std::string ExpressionParser::ExpectName() {
  if (Peek().kind == Kind::kName) return Next().text;
  Fail("expected a name but found " + Spelling(Peek()));
  return "";
}

ExpressionParser::Deeper::Deeper(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.depth_ > kMaxDepth)
    parser_.Fail("nested more than " + std::to_string(kMaxDepth) + " deep");
}

ExprPtr ExpressionParser::Make(Expr::Kind kind, std::string name) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = Peek().line;
  expr->name = std::move(name);
  return expr;
}

ExprPtr ExpressionParser::Make(Expr::Kind kind, std::string name, ExprPtr first, ExprPtr second) {
  ExprPtr expr = Make(kind, std::move(name));
  Adopt(*expr, std::move(first));
  if (second) Adopt(*expr, std::move(second));
  return expr;
}

void ExpressionParser::Adopt(Expr& parent, ExprPtr child) {
  CountHeight(parent, child.get());
  parent.args.push_back(std::move(child));
}

void ExpressionParser::CountHeight(Expr& parent, const Expr* child) {
  if (child != nullptr) parent.height = std::max(parent.height, child->height + 1);
  if (parent.height > kMaxHeight)
    Fail("an expression has more than " + std::to_string(kMaxHeight) + " parts in a row");
}

ExprPtr ExpressionParser::ParseIterable() { return ParseBinary(0); }

ExprPtr ExpressionParser::ParseExpr() {
  const Deeper deeper(*this);
  ExprPtr value = ParseBinary(0);
  if (!TakeName("if")) return value;
  ExprPtr expr = Make(Expr::Kind::kCondition);
  Adopt(*expr, ParseBinary(0));
  Adopt(*expr, std::move(value));
  Adopt(*expr, TakeName("else") ? ParseExpr() : nullptr);
  return expr;
}

// Left-associative operators by level, loosest first. Between "and" and "+" stand not and the
// comparisons.
ExprPtr ExpressionParser::ParseBinary(size_t level) {
  static const std::vector<std::vector<std::string_view>> kLevels = {
      {"or"}, {"and"}, {"+", "-"}, {"~"}, {"*", "/", "//", "%"}};
  const auto operand = [&] {
    if (level == 1) return ParseNot();
    if (level + 1 == kLevels.size()) return ParseUnary(/*with_filters=*/true);
    return ParseBinary(level + 1);
  };
  ExprPtr left = operand();
  while (error_.ok()) {
    const Kind kind = level < 2 ? Kind::kName : Kind::kOperator;
    const auto& ops = kLevels[level];
    if (Peek().kind != kind || std::find(ops.begin(), ops.end(), Peek().text) == ops.end()) break;
    const std::string op = Next().text;
    left = Make(Expr::Kind::kBinary, op, std::move(left), operand());
  }
  if (level == 4 && IsOperator("**"))
    Fail("the operator ** is not supported", StatusCode::kUnimplemented);
  return left;
}

ExprPtr ExpressionParser::ParseNot() {
  const Deeper deeper(*this);
  if (error_.ok() && TakeName("not")) return Make(Expr::Kind::kNot, "", ParseNot());
  return ParseComparison();
}

// The comparison operator that is next, taken; "" if there is none.
std::string ExpressionParser::TakeComparison() {
  static const std::vector<std::string_view> kOperators = {"==", "!=", "<", "<=", ">", ">="};
  if (Peek().kind == Kind::kOperator &&
      std::find(kOperators.begin(), kOperators.end(), Peek().text) != kOperators.end())
    return Next().text;
  if (TakeName("in")) return "in";
  if (!IsName("not") || Peek(1).kind != Kind::kName || Peek(1).text != "in") return "";
  Next();
  Next();
  return "not in";
}

ExprPtr ExpressionParser::ParseComparison() {
  ExprPtr left = ParseBinary(2);
  if (!error_.ok()) return left;
  const std::string op = TakeComparison();
  if (op.empty()) return left;
  left = Make(Expr::Kind::kBinary, op, std::move(left), ParseBinary(2));
  if (error_.ok() && !TakeComparison().empty()) {
    Fail("chained comparisons (a < b < c) are not supported; write 'a < b and b < c'",
         StatusCode::kUnimplemented);
  }
  return left;
}

ExprPtr ExpressionParser::ParseUnary(bool with_filters) {
  const Deeper deeper(*this);
  ExprPtr expr;
  if (error_.ok() && TakeOperator("-")) {
    expr = Make(Expr::Kind::kNegate, "", ParseUnary(false));
  } else if (error_.ok() && TakeOperator("+")) {
    expr = ParseUnary(false);
  } else {
    expr = ParsePostfix(ParsePrimary());
  }
  return with_filters ? ParseFilters(std::move(expr)) : std::move(expr);
}

ExprPtr ExpressionParser::ParsePrimary() {
  const Token& token = Peek();
  ExprPtr expr = Make(Expr::Kind::kLiteral);
  switch (token.kind) {
    case Kind::kName: return ParseNameOrConstant();
    case Kind::kInteger: expr->literal = Value(Next().integer); return expr;
    case Kind::kFloat: expr->literal = Value(Next().real); return expr;
    case Kind::kString: {
      std::string text;
      while (Peek().kind == Kind::kString) text += Next().text;
      expr->literal = Value(std::move(text));
      return expr;
    }
    default: break;
  }
  if (TakeOperator("[")) return ParseSequence("]", nullptr);
  if (TakeOperator("{")) return ParseDict();
  if (TakeOperator("(")) {
    if (IsOperator(")")) return ParseSequence(")", nullptr);
    ExprPtr inner = ParseExpr();
    if (TakeOperator(",")) return ParseSequence(")", std::move(inner));
    Expect(")");
    return inner;
  }
  Fail("expected an expression but found " + Spelling(token));
  return expr;
}

ExprPtr ExpressionParser::ParseNameOrConstant() {
  ExprPtr expr = Make(Expr::Kind::kLiteral);
  const std::string name = Next().text;
  if (name == "true" || name == "True") {
    expr->literal = Value(true);
  } else if (name == "false" || name == "False") {
    expr->literal = Value(false);
  } else if (name == "none" || name == "None") {
    expr->literal = Value::MakeNone();
  } else {
    expr->kind = Expr::Kind::kName;
    expr->name = name;
  }
  return expr;
}

// A list or a tuple, which templates cannot tell apart; behind its opening bracket, or behind
// `first` and a comma.
ExprPtr ExpressionParser::ParseSequence(std::string_view close, ExprPtr first) {
  ExprPtr expr = Make(Expr::Kind::kList);
  if (first) Adopt(*expr, std::move(first));
  while (error_.ok() && !IsOperator(close)) {
    Adopt(*expr, ParseExpr());
    if (!TakeOperator(",")) break;
  }
  Expect(close);
  return expr;
}

ExprPtr ExpressionParser::ParseDict() {
  ExprPtr expr = Make(Expr::Kind::kDict);
  while (error_.ok() && !IsOperator("}")) {
    Adopt(*expr, ParseExpr());
    Expect(":");
    Adopt(*expr, ParseExpr());
    if (!TakeOperator(",")) break;
  }
  Expect("}");
  return expr;
}

ExprPtr ExpressionParser::ParsePostfix(ExprPtr expr) {
  while (error_.ok()) {
    if (TakeOperator(".")) {
      expr = Make(Expr::Kind::kAttribute, ExpectName(), std::move(expr));
    } else if (TakeOperator("[")) {
      expr = ParseSubscript(std::move(expr));
    } else if (TakeOperator("(")) {
      ExprPtr call = Make(Expr::Kind::kCall, "", std::move(expr));
      ParseArguments(*call);
      expr = std::move(call);
    } else {
      break;
    }
  }
  return expr;
}

ExprPtr ExpressionParser::ParseSubscript(ExprPtr expr) {
  const auto part = [&]() -> ExprPtr {
    return IsOperator(":") || IsOperator("]") ? nullptr : ParseExpr();
  };
  ExprPtr first = part();
  if (!IsOperator(":")) {
    if (first == nullptr) Fail("expected an index in [ ]");
    Expect("]");
    return Make(Expr::Kind::kIndex, "", std::move(expr), std::move(first));
  }
  ExprPtr slice = Make(Expr::Kind::kSlice, "", std::move(expr));
  Adopt(*slice, std::move(first));
  for (int i = 0; i < 2; ++i) Adopt(*slice, TakeOperator(":") ? part() : nullptr);
  Expect("]");
  return slice;
}

void ExpressionParser::ParseArguments(Expr& call) {
  while (error_.ok() && !IsOperator(")")) {
    if (Peek().kind == Kind::kName && Peek(1).kind == Kind::kOperator && Peek(1).text == "=") {
      std::string name = Next().text;
      Next();
      ExprPtr value = ParseExpr();
      CountHeight(call, value.get());
      call.keywords.emplace_back(std::move(name), std::move(value));
    } else {
      Adopt(call, ParseExpr());
    }
    if (!TakeOperator(",")) break;
  }
  Expect(")");
}

ExprPtr ExpressionParser::ParseFilters(ExprPtr expr) {
  while (error_.ok()) {
    if (TakeOperator("|")) {
      expr = Make(Expr::Kind::kFilter, ExpectName(), std::move(expr));
      if (TakeOperator("(")) ParseArguments(*expr);
    } else if (TakeName("is")) {
      expr = ParseTest(std::move(expr));
    } else {
      break;
    }
  }
  return expr;
}

// Whether a test's argument without ( ) is next: value is eq other.
bool ExpressionParser::BeginsArgument() const {
  static constexpr std::string_view kOthers[] = {"else", "or", "and", "if",
                                                 "is",   "in", "not", "recursive"};
  switch (Peek().kind) {
    case Kind::kString:
    case Kind::kInteger:
    case Kind::kFloat: return true;
    case Kind::kOperator: return IsOperator("[") || IsOperator("{");
    case Kind::kName:
      return std::find(std::begin(kOthers), std::end(kOthers), Peek().text) == std::end(kOthers);
    default: return false;
  }
}

ExprPtr ExpressionParser::ParseTest(ExprPtr expr) {
  const bool negated = TakeName("not");
  ExprPtr test = Make(Expr::Kind::kTest, ExpectName(), std::move(expr));
  if (TakeOperator("(")) {
    ParseArguments(*test);
  } else if (BeginsArgument()) {
    Adopt(*test, ParsePostfix(ParsePrimary()));
  }
  return negated ? Make(Expr::Kind::kNot, "", std::move(test)) : std::move(test);
}

}  // namespace lamina::chat
