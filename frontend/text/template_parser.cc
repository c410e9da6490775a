#include <algorithm>
#include <initializer_list>

#include "frontend/text/template_ast.h"
#include "frontend/text/template_lexer.h"

namespace lamina::chat {
namespace {

// Nesting of blocks and expressions; the parser and the evaluator recurse this deep, several frames each. Real templates stay below 20.
constexpr int kMaxDepth = 150;

// Height of one expression's tree. A chain such as a + b + c + ... is as high as it is long.
constexpr int kMaxHeight = 400;

// Errors are sticky: the first one is kept, the position jumps to the end, and every loop ends there.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<Block> Run() {
    Block block = ParseBlock({});
    if (!error_.ok()) return error_;
    return block;
  }

 private:
  using Kind = Token::Kind;

  const Token& Peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& Next() {
    const Token& token = Peek();
    at_ = std::min(at_ + 1, tokens_.size() - 1);
    return token;
  }
  void Fail(const std::string& message, StatusCode code = StatusCode::kInvalidArgument) {
    if (error_.ok()) error_ = Status(code, "line " + std::to_string(Peek().line) + ": " + message);
    at_ = tokens_.size() - 1;
  }
  static std::string Spelling(const Token& token) {
    switch (token.kind) {
      case Kind::kBlockEnd: return "%}";
      case Kind::kOutputEnd: return "}}";
      case Kind::kEnd: return "the end of the template";
      case Kind::kString: return "a string";
      default: return "'" + token.text + "'";
    }
  }
  bool IsOperator(std::string_view spelling) const { return Peek().kind == Kind::kOperator && Peek().text == spelling; }
  bool IsName(std::string_view name) const { return Peek().kind == Kind::kName && Peek().text == name; }
  bool TakeOperator(std::string_view spelling) { return IsOperator(spelling) && (Next(), true); }
  bool TakeName(std::string_view name) { return IsName(name) && (Next(), true); }
  void Expect(std::string_view op) {
    if (!TakeOperator(op)) Fail("expected '" + std::string(op) + "' but found " + Spelling(Peek()));
  }
  void ExpectKind(Kind kind, const char* what) {
    if (Peek().kind == kind) {
      Next();
    } else {
      Fail(std::string("expected ") + what + " but found " + Spelling(Peek()));
    }
  }
  std::string ExpectName() {
    if (Peek().kind == Kind::kName) return Next().text;
    Fail("expected a name but found " + Spelling(Peek()));
    return "";
  }
  ExprPtr Make(Expr::Kind kind, std::string name = "") const {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = Peek().line;
    expr->name = std::move(name);
    return expr;
  }
  ExprPtr Make(Expr::Kind kind, std::string name, ExprPtr first, ExprPtr second = nullptr) {
    ExprPtr expr = Make(kind, std::move(name));
    Adopt(*expr, std::move(first));
    if (second) Adopt(*expr, std::move(second));
    return expr;
  }
  void Adopt(Expr& parent, ExprPtr child) {
    CountHeight(parent, child.get());
    parent.args.push_back(std::move(child));
  }
  void CountHeight(Expr& parent, const Expr* child) {
    if (child != nullptr) parent.height = std::max(parent.height, child->height + 1);
    if (parent.height > kMaxHeight) Fail("an expression has more than " + std::to_string(kMaxHeight) + " parts in a row");
  }

  // Counts nesting while it lives.
  class Deeper {
   public:
    explicit Deeper(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxDepth) parser_.Fail("nested more than " + std::to_string(kMaxDepth) + " deep");
    }
    ~Deeper() { --parser_.depth_; }

   private:
    Parser& parser_;
  };

  Block ParseBlock(std::initializer_list<std::string_view> end_names);
  void ParseStatement(Block& block);
  Node ParseIf(int line);
  Node ParseFor(int line);
  Node ParseSet(int line);
  void ExpectBlockEnd() { ExpectKind(Kind::kBlockEnd, "%}"); }

  ExprPtr ParseExpr();
  ExprPtr ParseBinary(size_t level);
  ExprPtr ParseNot();
  ExprPtr ParseComparison();
  ExprPtr ParseUnary(bool with_filters);
  ExprPtr ParsePrimary();
  ExprPtr ParseNameOrConstant();
  ExprPtr ParseSequence(std::string_view close, ExprPtr first);
  ExprPtr ParseDict();
  ExprPtr ParsePostfix(ExprPtr expr);
  ExprPtr ParseSubscript(ExprPtr expr);
  ExprPtr ParseFilters(ExprPtr expr);
  ExprPtr ParseTest(ExprPtr expr);
  void ParseArguments(Expr& call);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;
  Status error_;
};

// Up to, and without, a block that begins with one of `end_names`; its name is not consumed.
Block Parser::ParseBlock(std::initializer_list<std::string_view> end_names) {
  const Deeper deeper(*this);
  Block block;
  while (error_.ok() && Peek().kind != Kind::kEnd) {
    const Token& token = Next();
    if (token.kind == Kind::kText) {
      Node node;
      node.text = token.text;
      block.push_back(std::move(node));
    } else if (token.kind == Kind::kOutputBegin) {
      Node node;
      node.kind = Node::Kind::kOutput;
      node.line = token.line;
      node.expr = ParseExpr();
      ExpectKind(Kind::kOutputEnd, "}}");
      block.push_back(std::move(node));
    } else {
      if (std::any_of(end_names.begin(), end_names.end(), [&](std::string_view name) { return IsName(name); })) return block;
      ParseStatement(block);
    }
  }
  if (end_names.size() != 0) Fail("the template ends before {% " + std::string(*(end_names.end() - 1)) + " %}");
  return block;
}

void Parser::ParseStatement(Block& block) {
  const int line = Peek().line;
  if (TakeName("if")) {
    block.push_back(ParseIf(line));
  } else if (TakeName("for")) {
    block.push_back(ParseFor(line));
  } else if (TakeName("set")) {
    block.push_back(ParseSet(line));
  } else if (IsName("break") || IsName("continue")) {
    if (loops_ == 0) return Fail(Spelling(Peek()) + " outside of a loop");
    Node node;
    node.line = line;
    node.kind = Next().text == "break" ? Node::Kind::kBreak : Node::Kind::kContinue;
    block.push_back(std::move(node));
  } else if (Peek().kind == Kind::kName && !Peek().text.starts_with("end") && !IsName("else") && !IsName("elif")) {
    return Fail("{% " + Peek().text + " %} is not supported", StatusCode::kUnimplemented);
  } else {
    return Fail("unexpected " + Spelling(Peek()) + " in a block");
  }
  ExpectBlockEnd();
}

Node Parser::ParseIf(int line) {
  Node node;
  node.kind = Node::Kind::kIf;
  node.line = line;
  node.branches.push_back({ParseExpr(), {}});
  while (error_.ok()) {
    ExpectBlockEnd();
    node.branches.back().body = ParseBlock({"elif", "else", "endif"});
    if (TakeName("endif")) break;
    const bool had_else = node.branches.back().condition == nullptr;
    if (had_else) Fail("{% if %} goes on behind its {% else %}");
    if (TakeName("elif")) {
      node.branches.push_back({ParseExpr(), {}});
    } else if (TakeName("else")) {
      node.branches.push_back({nullptr, {}});
    }
  }
  return node;
}

Node Parser::ParseFor(int line) {
  Node node;
  node.kind = Node::Kind::kFor;
  node.line = line;
  do {
    node.names.push_back(ExpectName());
  } while (TakeOperator(","));
  if (!TakeName("in")) Fail("expected 'in' but found " + Spelling(Peek()));
  node.expr = ParseBinary(0);  // no inline if here: it filters the loop
  if (TakeName("if")) node.condition = ParseExpr();
  if (IsName("recursive")) Fail("{% for ... recursive %} is not supported", StatusCode::kUnimplemented);
  ExpectBlockEnd();
  ++loops_;
  node.body = ParseBlock({"else", "endfor"});
  --loops_;
  if (TakeName("else")) {
    ExpectBlockEnd();
    node.otherwise = ParseBlock({"endfor"});
  }
  TakeName("endfor");
  return node;
}

Node Parser::ParseSet(int line) {
  Node node;
  node.kind = Node::Kind::kSet;
  node.line = line;
  node.names.push_back(ExpectName());
  if (TakeOperator(".")) node.names.push_back(ExpectName());
  if (!IsOperator("=") && error_.ok()) Fail("{% set %} of this form is not supported; only NAME = EXPRESSION is", StatusCode::kUnimplemented);
  Expect("=");
  node.expr = ParseExpr();
  return node;
}

ExprPtr Parser::ParseExpr() {
  const Deeper deeper(*this);
  ExprPtr value = ParseBinary(0);
  if (!TakeName("if")) return value;
  ExprPtr expr = Make(Expr::Kind::kCondition);
  Adopt(*expr, ParseBinary(0));
  Adopt(*expr, std::move(value));
  Adopt(*expr, TakeName("else") ? ParseExpr() : nullptr);
  return expr;
}

// Left-associative operators by level, loosest first. Between "and" and "+" stand not and the comparisons.
ExprPtr Parser::ParseBinary(size_t level) {
  static const std::vector<std::vector<std::string_view>> kLevels = {{"or"}, {"and"}, {"+", "-"}, {"~"}, {"*", "/", "//", "%"}};
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
  if (level == 4 && IsOperator("**")) Fail("the operator ** is not supported", StatusCode::kUnimplemented);
  return left;
}

ExprPtr Parser::ParseNot() {
  const Deeper deeper(*this);
  if (error_.ok() && TakeName("not")) return Make(Expr::Kind::kNot, "", ParseNot());
  return ParseComparison();
}

ExprPtr Parser::ParseComparison() {
  static const std::vector<std::string_view> kOperators = {"==", "!=", "<", "<=", ">", ">="};
  ExprPtr left = ParseBinary(2);
  bool compared = false;
  while (error_.ok()) {
    std::string op;
    if (Peek().kind == Kind::kOperator && std::find(kOperators.begin(), kOperators.end(), Peek().text) != kOperators.end()) {
      op = Next().text;
    } else if (TakeName("in")) {
      op = "in";
    } else if (IsName("not") && Peek(1).kind == Kind::kName && Peek(1).text == "in") {
      Next();
      Next();
      op = "not in";
    } else {
      break;
    }
    if (compared) Fail("chained comparisons (a < b < c) are not supported; write 'a < b and b < c'", StatusCode::kUnimplemented);
    compared = true;
    left = Make(Expr::Kind::kBinary, op, std::move(left), ParseBinary(2));
  }
  return left;
}

ExprPtr Parser::ParseUnary(bool with_filters) {
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

ExprPtr Parser::ParsePrimary() {
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

ExprPtr Parser::ParseNameOrConstant() {
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

// A list or a tuple, which templates cannot tell apart; behind its opening bracket, or behind `first` and a comma.
ExprPtr Parser::ParseSequence(std::string_view close, ExprPtr first) {
  ExprPtr expr = Make(Expr::Kind::kList);
  if (first) Adopt(*expr, std::move(first));
  while (error_.ok() && !IsOperator(close)) {
    Adopt(*expr, ParseExpr());
    if (!TakeOperator(",")) break;
  }
  Expect(close);
  return expr;
}

ExprPtr Parser::ParseDict() {
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

ExprPtr Parser::ParsePostfix(ExprPtr expr) {
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

ExprPtr Parser::ParseSubscript(ExprPtr expr) {
  const auto part = [&]() -> ExprPtr { return IsOperator(":") || IsOperator("]") ? nullptr : ParseExpr(); };
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

void Parser::ParseArguments(Expr& call) {
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

ExprPtr Parser::ParseFilters(ExprPtr expr) {
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

ExprPtr Parser::ParseTest(ExprPtr expr) {
  const bool negated = TakeName("not");
  ExprPtr test = Make(Expr::Kind::kTest, ExpectName(), std::move(expr));
  if (TakeOperator("(")) {
    ParseArguments(*test);
  } else if (Peek().kind == Kind::kString || Peek().kind == Kind::kInteger) {
    Adopt(*test, ParsePrimary());
  }
  return negated ? Make(Expr::Kind::kNot, "", std::move(test)) : std::move(test);
}

}  // namespace

Result<Block> Parse(std::string source) {
  LAMINA_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(std::move(source)));
  return Parser(std::move(tokens)).Run();
}

}  // namespace lamina::chat
