#include "text/template_lexer.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "text/utf8.h"

namespace lamina::chat {
namespace {

// Each becomes about 100 bytes of tokens and tree; templates in use have 30 KB.
constexpr size_t kMaxSourceBytes = size_t{2} << 20;
// Each time a name is bound it is copied; in use are 40.
constexpr size_t kMaxNameBytes = 128;

constexpr std::string_view kWhitespace = " \t\n\r\f\v";

bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string UnixLineEnds(std::string text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      result += text[i];
    } else {
      result += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    }
  }
  if (result.ends_with('\n')) result.pop_back();  // keep_trailing_newline is off
  return result;
}

class Lexer {
 public:
  explicit Lexer(std::string source)
      : storage_(UnixLineEnds(std::move(source))), source_(storage_) {}

  Result<std::vector<Token>> Run() {
    while (error_.ok() && at_ < source_.size()) LexTextAndTag();
    Add(Token::Kind::kEnd);
    if (!error_.ok()) return error_;
    return std::move(tokens_);
  }

 private:
  void Fail(const std::string& message) {
    if (error_.ok()) error_ = InvalidArgument("line " + std::to_string(line_) + ": " + message);
  }
  void Add(Token::Kind kind, std::string text = "") {
    tokens_.push_back({kind, std::move(text), 0, 0, line_});
  }
  void Advance(size_t count) {
    line_ += static_cast<int>(std::count(
        source_.begin() + static_cast<std::ptrdiff_t>(at_),
        source_.begin() + static_cast<std::ptrdiff_t>(std::min(at_ + count, source_.size())),
        '\n'));
    at_ = std::min(at_ + count, source_.size());
  }
  std::string_view Rest() const { return source_.substr(at_); }
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }

  size_t NextTag() const;
  void LexTextAndTag();
  void LexComment();
  void LexInside(bool block);
  void EndTag(char dash, bool block);
  void LexToken();
  void LexString(char quote);
  void LexEscape(std::string& value);
  void LexNumber();
  void LexOperator();

  std::string storage_;
  std::string_view source_;
  std::vector<Token> tokens_;
  Status error_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // what was taken last ended with a line break
  bool strip_next_ = false;    // the tag before ended with '-'
};

size_t Lexer::NextTag() const {
  for (size_t open = source_.find('{', at_);
       open != std::string_view::npos && open + 1 < source_.size();
       open = source_.find('{', open + 1)) {
    if (std::strchr("{%#", source_[open + 1]) != nullptr && source_[open + 1] != '\0') return open;
  }
  return source_.size();
}

void Lexer::LexTextAndTag() {
  if (strip_next_) Advance(std::min(Rest().find_first_not_of(kWhitespace), Rest().size()));
  strip_next_ = false;
  const size_t tag = NextTag();
  std::string_view text = source_.substr(at_, tag - at_);
  const bool is_output = tag < source_.size() && source_[tag + 1] == '{';
  const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
  if (tag < source_.size() && sign == '-') {
    text = text.substr(0, text.find_last_not_of(kWhitespace) + 1);
  } else if (tag < source_.size() && !is_output && sign != '+') {  // lstrip_blocks
    const size_t line_begin = text.rfind('\n') + 1;
    if ((line_begin > 0 || line_starting_) &&
        text.find_first_not_of(" \t\f\v\r", line_begin) == std::string_view::npos)
      text = text.substr(0, line_begin);
  }
  if (!text.empty()) Add(Token::Kind::kText, std::string(text));
  if (tag > at_) line_starting_ = source_[tag - 1] == '\n';
  Advance(tag - at_);
  if (at_ == source_.size()) return;
  const char kind = Peek(1);
  Advance(2);
  if (kind == '#') {
    LexComment();
  } else {
    if (Peek() == '-' || Peek() == '+') Advance(1);
    LexInside(kind == '%');
  }
}

// After "-}" the white space that follows goes; otherwise the line break behind a block or comment
// does (trim_blocks), unless "+" says no.
void Lexer::EndTag(char dash, bool block) {
  strip_next_ = dash == '-';
  line_starting_ = false;
  if (dash == '\0' && block && Peek() == '\n') {
    Advance(1);
    line_starting_ = true;
  }
}

void Lexer::LexComment() {
  const size_t end = Rest().find("#}");
  if (end == std::string_view::npos) return Fail("a comment {# is not closed by #}");
  const char before = end > 0 ? Rest()[end - 1] : '\0';
  Advance(end + 2);
  EndTag(before == '-' || before == '+' ? before : '\0', true);
}

void Lexer::LexInside(bool block) {
  Add(block ? Token::Kind::kBlockBegin : Token::Kind::kOutputBegin);
  const std::string_view close = block ? "%}" : "}}";
  int open_braces = 0;  // so that {{ {"a": {}}["a"] }} ends at its end
  while (error_.ok()) {
    Advance(std::min(Rest().find_first_not_of(kWhitespace), Rest().size()));
    if (at_ == source_.size())
      return Fail(block ? "a block {% is not closed by %}" : "an output {{ is not closed by }}");
    const bool signed_end = (Peek() == '-' || Peek() == '+') && Rest().substr(1).starts_with(close);
    if (open_braces == 0 && (signed_end || Rest().starts_with(close))) {
      const char dash = signed_end ? Peek() : '\0';
      Add(block ? Token::Kind::kBlockEnd : Token::Kind::kOutputEnd);
      Advance(close.size() + (signed_end ? 1 : 0));
      return EndTag(dash, block);
    }
    if (Peek() == '{') ++open_braces;
    if (Peek() == '}') --open_braces;
    LexToken();
  }
}

void Lexer::LexToken() {
  const char c = Peek();
  if (c == '"' || c == '\'') return LexString(c);
  if (IsDigit(c)) return LexNumber();
  if (!IsNameStart(c)) return LexOperator();
  size_t size = 1;
  while (IsNameStart(Peek(size)) || IsDigit(Peek(size))) ++size;
  if (size > kMaxNameBytes)
    return Fail("a name of more than " + std::to_string(kMaxNameBytes) + " characters");
  Add(Token::Kind::kName, std::string(Rest().substr(0, size)));
  Advance(size);
}

void Lexer::LexString(char quote) {
  std::string value;
  Advance(1);
  while (at_ < source_.size() && Peek() != quote) {
    if (Peek() == '\\' && at_ + 1 < source_.size()) {
      LexEscape(value);
    } else {
      value += Peek();
      Advance(1);
    }
  }
  if (at_ == source_.size()) return Fail("a string is not closed");
  Advance(1);
  Add(Token::Kind::kString, std::move(value));
}

void Lexer::LexEscape(std::string& value) {
  const char c = Peek(1);
  const auto from_hex = [&](size_t digits) {
    unsigned number = 0;
    const std::string_view text = Rest().substr(2, digits);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
    if (error != std::errc() || text.size() != digits || end != text.data() + digits)
      Fail("bad escape in a string");
    AppendCodePoint(number, value);
    Advance(2 + digits);
  };
  if (c == 'x') return from_hex(2);
  if (c == 'u') return from_hex(4);
  Advance(2);
  switch (c) {
    case 'n': value += '\n'; break;
    case 't': value += '\t'; break;
    case 'r': value += '\r'; break;
    case 'b': value += '\b'; break;
    case 'f': value += '\f'; break;
    case 'v': value += '\v'; break;
    case 'a': value += '\a'; break;
    case '\\':
    case '\'':
    case '"': value += c; break;
    case '\n': break;  // the line goes on
    default: (value += '\\') += c;
  }
}

void Lexer::LexNumber() {
  size_t size = 1;
  while (IsDigit(Peek(size))) ++size;
  const bool real = Peek(size) == '.' && IsDigit(Peek(size + 1));
  if (real) {
    ++size;
    while (IsDigit(Peek(size))) ++size;
  }
  const std::string_view text = Rest().substr(0, size);
  Token token{real ? Token::Kind::kFloat : Token::Kind::kInteger, std::string(text), 0, 0, line_};
  const auto result = real ? std::from_chars(text.data(), text.data() + size, token.real)
                           : std::from_chars(text.data(), text.data() + size, token.integer);
  if (result.ec != std::errc())
    return Fail("the number " + Shortened(token.text, kMaxNameBytes) + " is too large");
  tokens_.push_back(std::move(token));
  Advance(size);
}

void Lexer::LexOperator() {
  for (const std::string_view two : {"==", "!=", "<=", ">=", "//", "**"}) {
    if (Rest().starts_with(two)) {
      Add(Token::Kind::kOperator, std::string(two));
      return Advance(2);
    }
  }
  if (std::strchr("+-*/%~<>=()[]{}.,:|", Peek()) == nullptr || Peek() == '\0')
    return Fail(std::string("unexpected character '") + Peek() + "'");
  Add(Token::Kind::kOperator, std::string(1, Peek()));
  Advance(1);
}

}  // namespace

Result<std::vector<Token>> Tokenize(std::string source) {
  if (source.size() > kMaxSourceBytes) {
    return InvalidArgument("the template has " + std::to_string(source.size()) +
                           " bytes, expected at most " + std::to_string(kMaxSourceBytes));
  }
  return Lexer(std::move(source)).Run();
}

}  // namespace lamina::chat
