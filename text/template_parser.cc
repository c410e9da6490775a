#include <algorithm>
#include <initializer_list>
#include <utility>

#include "text/template_ast.h"
#include "text/template_expressions.h"

namespace lamina::chat {
namespace {

using Kind = Token::Kind;

// Parses text and blocks; expressions by its base.
class Parser : private ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Result<Block> Run() {
    Block block = ParseBlock({});
    if (!error().ok()) return error();
    return block;
  }

 private:
  Block ParseBlock(std::initializer_list<std::string_view> end_names);
  void ParseStatement(Block& block);
  Node ParseIf(int line);
  Node ParseFor(int line);
  Node ParseSet(int line);
  Node ParseMacro(int line);
  Node ParseGeneration(int line);
  Block ParseBody(std::string_view end_name);
  void ExpectBlockEnd() { ExpectKind(Kind::kBlockEnd, "%}"); }

  int loops_ = 0;  // around the current statement
};

// Up to, and without, a block that begins with one of `end_names`; its name is not consumed.
Block Parser::ParseBlock(std::initializer_list<std::string_view> end_names) {
  const Deeper deeper(*this);
  Block block;
  while (error().ok() && Peek().kind != Kind::kEnd) {
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
      if (std::any_of(end_names.begin(), end_names.end(),
                      [&](std::string_view name) { return IsName(name); }))
        return block;
      ParseStatement(block);
    }
  }
  if (end_names.size() != 0)
    Fail("the template ends before {% " + std::string(*(end_names.end() - 1)) + " %}");
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
  } else if (TakeName("macro")) {
    block.push_back(ParseMacro(line));
  } else if (TakeName("generation")) {
    block.push_back(ParseGeneration(line));
  } else if (IsName("break") || IsName("continue")) {
    if (loops_ == 0) return Fail(Spelling(Peek()) + " outside of a loop");
    Node node;
    node.line = line;
    node.kind = Next().text == "break" ? Node::Kind::kBreak : Node::Kind::kContinue;
    block.push_back(std::move(node));
  } else if (Peek().kind == Kind::kName && !Peek().text.starts_with("end") && !IsName("else") &&
             !IsName("elif")) {
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
  while (error().ok()) {
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
  node.expr = ParseIterable();
  if (TakeName("if")) node.condition = ParseExpr();
  if (IsName("recursive"))
    Fail("{% for ... recursive %} is not supported", StatusCode::kUnimplemented);
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

// The statements of a block that the tag before has opened; the tag of its end is consumed up to
// its %}.
Block Parser::ParseBody(std::string_view end_name) {
  ExpectBlockEnd();
  Block body = ParseBlock({end_name});
  TakeName(end_name);
  return body;
}

Node Parser::ParseSet(int line) {
  Node node;
  node.kind = Node::Kind::kSet;
  node.line = line;
  node.names.push_back(ExpectName());
  if (TakeOperator(".")) {
    node.into_attribute = true;
    node.names.push_back(ExpectName());
  }
  while (!node.into_attribute && TakeOperator(",")) node.names.push_back(ExpectName());
  if (node.names.size() == 1 && Peek().kind == Kind::kBlockEnd) {
    node.kind = Node::Kind::kCapture;
    node.body = ParseBody("endset");
    return node;
  }
  if (!IsOperator("=") && error().ok())
    Fail("{% set %} of this form is not supported; NAME = EXPRESSION and {% set NAME %} are",
         StatusCode::kUnimplemented);
  Expect("=");
  node.expr = ParseExpr();
  return node;
}

Node Parser::ParseMacro(int line) {
  Node node;
  node.kind = Node::Kind::kMacro;
  node.line = line;
  node.names.push_back(ExpectName());
  Expect("(");
  while (error().ok() && !IsOperator(")")) {
    node.names.push_back(ExpectName());
    if (TakeOperator("=")) {
      node.defaults.push_back(ParseExpr());
    } else if (!node.defaults.empty()) {
      Fail("a parameter without a default behind one that has one");
    }
    if (!TakeOperator(",")) break;
  }
  Expect(")");
  const int loops = std::exchange(loops_, 0);
  node.body = ParseBody("endmacro");
  loops_ = loops;
  return node;
}

// Marks for training what the model itself says; puts out the same.
Node Parser::ParseGeneration(int line) {
  Node node;
  node.kind = Node::Kind::kIf;
  node.line = line;
  node.branches.push_back({nullptr, ParseBody("endgeneration")});
  return node;
}

}  // namespace

Result<Block> Parse(std::string source) {
  LAMINA_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(std::move(source)));
  return Parser(std::move(tokens)).Run();
}

}  // namespace lamina::chat
