// Parses the expressions inside {{ }} and {% %}. The statements around them: template_parser.cc.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/template_ast.h"
#include "text/template_lexer.h"

namespace lamina::chat {

// Errors are sticky: the first one is kept, the position jumps to the end, and every loop ends
// there.
class ExpressionParser {
 public:
  // REQUIRES: the last one is kEnd.
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  ExprPtr ParseExpr();
  ExprPtr ParseIterable();  // without an inline if, which would filter a loop

  // The tokens that are next, and taking them.
  const Token& Peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Token& Next();
  bool IsOperator(std::string_view spelling) const {
    return Peek().kind == Token::Kind::kOperator && Peek().text == spelling;
  }
  bool IsName(std::string_view name) const {
    return Peek().kind == Token::Kind::kName && Peek().text == name;
  }
  bool TakeOperator(std::string_view spelling) { return IsOperator(spelling) && (Next(), true); }
  bool TakeName(std::string_view name) { return IsName(name) && (Next(), true); }
  void Expect(std::string_view op);
  void ExpectKind(Token::Kind kind, const char* what);
  std::string ExpectName();

  void Fail(const std::string& message, StatusCode code = StatusCode::kInvalidArgument);
  const Status& error() const { return error_; }

  // Counts nesting while it lives; too much of it is an error.
  class Deeper {
   public:
    explicit Deeper(ExpressionParser& parser);
    ~Deeper() { --parser_.depth_; }

   private:
    ExpressionParser& parser_;
  };

 private:
  ExprPtr Make(Expr::Kind kind, std::string name = "") const;
  ExprPtr Make(Expr::Kind kind, std::string name, ExprPtr first, ExprPtr second = nullptr);
  void Adopt(Expr& parent, ExprPtr child);
  void CountHeight(Expr& parent, const Expr* child);

  ExprPtr ParseBinary(size_t level);
  ExprPtr ParseNot();
  ExprPtr ParseComparison();
  std::string TakeComparison();
  ExprPtr ParseUnary(bool with_filters);
  ExprPtr ParsePrimary();
  ExprPtr ParseNameOrConstant();
  ExprPtr ParseSequence(std::string_view close, ExprPtr first);
  ExprPtr ParseDict();
  ExprPtr ParsePostfix(ExprPtr expr);
  ExprPtr ParseSubscript(ExprPtr expr);
  ExprPtr ParseFilters(ExprPtr expr);
  ExprPtr ParseTest(ExprPtr expr);
  bool BeginsArgument() const;
  void ParseArguments(Expr& call);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  Status error_;
};

// A token as messages show it.
std::string Spelling(const Token& token);

}  // namespace lamina::chat
