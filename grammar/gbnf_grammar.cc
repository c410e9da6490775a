#include "grammar/gbnf_grammar.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "grammar/regex_grammar.h"
#include "text/utf8.h"

namespace lamina {
namespace {

constexpr int kMaxParentheses = 100;  // inside of each other
constexpr int64_t kMaxTimes = 1 << 20;

class GbnfParser {
 public:
  GbnfParser(std::string_view text, GrammarBuilder& builder) : text_(text), builder_(builder) {}

  Result<GrammarBuilder::Rule> Parse() {
    SkipSpace(true);
    while (!error_ && !at_end() && !builder_.is_full()) {
      ParseRule();
      SkipSpace(true);
    }
    if (error_) return *error_;
    for (const auto& [name, rule] : rules_) {
      if (!rule.defined)
        return InvalidArgument("the grammar, line " + std::to_string(rule.line) + ": the rule '" +
                               name + "' is not defined");
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) return InvalidArgument("the grammar has no rule 'root'");
    return root->second.rule;
  }

 private:
  struct Rule {
    GrammarBuilder::Rule rule = 0;
    int line = 0;  // where it is used first
    bool defined = false;
  };

  bool at_end() const { return error_ || at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool Take(std::string_view expected) {
    if (at_end() || !text_.substr(at_).starts_with(expected)) return false;
    at_ += expected.size();
    return true;
  }
  void Fail(const std::string& why) {
    if (error_) return;
    const auto line =
        1 + std::count(text_.begin(), text_.begin() + static_cast<int64_t>(at_), '\n');
    error_ = InvalidArgument("the grammar, line " + std::to_string(line) + ": " + why);
  }

  void SkipSpace(bool lines) {
    while (!at_end()) {
      const char c = text_[at_];
      if (c == '#') {
        while (!at_end() && text_[at_] != '\n') ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && lines)) {
        ++at_;
      } else {
        return;
      }
    }
  }

  static bool IsNameCharacter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  }

  std::string Name() {
    const size_t begin = at_;
    while (!at_end() && IsNameCharacter(text_[at_])) ++at_;
    if (at_ == begin) Fail("a name of letters, digits, '-' and '_' is expected");
    return std::string(text_.substr(begin, at_ - begin));
  }

  Rule& RuleOf(const std::string& name) {
    const auto [found, is_new] = rules_.try_emplace(name);
    if (is_new) {
      found->second.rule = builder_.DeclareRule(name);
      found->second.line = static_cast<int>(
          1 + std::count(text_.begin(), text_.begin() + static_cast<int64_t>(at_), '\n'));
    }
    return found->second;
  }

  void ParseRule() {
    const std::string name = Name();
    SkipSpace(false);
    if (!Take("::=")) Fail("'::=' is expected behind the name '" + name + "'");
    if (error_) return;
    SkipSpace(true);
    Rule& rule = RuleOf(name);
    if (rule.defined) return Fail("the rule '" + name + "' is defined twice");
    rule.defined = true;
    const Fragment body = Alternatives(0);
    if (!error_) builder_.DefineRule(rule.rule, body);
    if (peek() != '\n' && !at_end())
      Fail("something stands behind the end of the rule '" + name + "'");
  }

  // In parentheses lines may end anywhere; outside, where '|' is the last or the next thing.
  Fragment Alternatives(int depth) {
    std::vector<Fragment> alternatives;
    for (bool more = true; more && !error_ && !builder_.is_full();) {
      alternatives.push_back(Sequence(depth));
      more = Take("|") || TakeBarOnNextLine(depth);
      if (more) SkipSpace(true);
    }
    return error_ ? Fragment() : builder_.AnyOf(alternatives);
  }

  bool TakeBarOnNextLine(int depth) {
    if (depth > 0) return false;
    const size_t before = at_;
    SkipSpace(true);
    if (Take("|")) return true;
    at_ = before;
    return false;
  }

  Fragment Sequence(int depth) {
    std::vector<Fragment> parts;
    while (!error_ && !builder_.is_full()) {
      SkipSpace(depth > 0);
      const char c = peek();
      if (at_end() || c == '|' || c == ')' || c == '\n') break;
      const Fragment item = Item(depth);
      parts.push_back(Quantified(item));
    }
    return error_ ? Fragment() : builder_.Sequence(parts);
  }

  Fragment Item(int depth) {
    if (Take("\"")) return Literal();
    if (Take("[")) return OneOf();
    if (Take(".")) return builder_.CodePoints(AllCodePoints(), TextForm::kPlain);
    if (Take("(")) {
      if (depth == kMaxParentheses) Fail("parentheses are nested more than 100 deep");
      const Fragment body = Alternatives(depth + 1);
      if (!Take(")")) Fail("')' is expected");
      return body;
    }
    if (!IsNameCharacter(peek())) {
      Fail("a name, a text in quotes, a class or '(' is expected");
      return {};
    }
    const std::string name = Name();
    return error_ ? Fragment() : builder_.Call(RuleOf(name).rule);
  }

  Fragment Quantified(Fragment item) {
    int64_t min = 1;
    std::optional<int64_t> max = 1;
    while (!error_) {
      if (Take("*")) {
        min = 0;
        max = std::nullopt;
      } else if (Take("+")) {
        min = 1;
        max = std::nullopt;
      } else if (Take("?")) {
        min = 0;
        max = 1;
      } else if (Take("{")) {
        Counts(min, max);
      } else {
        return item;
      }
      if (!error_) item = builder_.Repeat(item, min, max);
    }
    return item;
  }

  void Counts(int64_t& min, std::optional<int64_t>& max) {
    const std::optional<int64_t> first = Number();
    min = first.value_or(0);
    max = first;
    SkipSpace(false);
    const bool is_range = Take(",");
    if (is_range) max = Number();
    SkipSpace(false);
    if ((!first && !is_range) || !Take("}")) Fail("'{n}', '{n,}', '{,m}' or '{n,m}' is expected");
    if (max && *max < min) Fail("the counts of a quantifier are the wrong way round");
    if (min > kMaxTimes || max.value_or(0) > kMaxTimes)
      Fail("a count is above " + std::to_string(kMaxTimes));
  }

  std::optional<int64_t> Number() {
    SkipSpace(false);
    if (peek() < '0' || peek() > '9') return std::nullopt;
    int64_t number = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_)
      number = std::min(number * 10 + (peek() - '0'), kMaxTimes + 1);
    return number;
  }

  Fragment Literal() {
    std::string bytes;
    while (!error_ && !Take("\"")) {
      if (at_end() || peek() == '\n') Fail("a text has no closing quote");
      AppendCodePoint(Character(), bytes);
    }
    return error_ ? Fragment() : builder_.Literal(bytes);
  }

  Fragment OneOf() {
    const bool inverted = Take("^");
    std::vector<CodePointRange> ranges;
    while (!error_ && !Take("]")) {
      if (at_end() || peek() == '\n') Fail("a class has no ']'");
      const uint32_t low = Character();
      uint32_t high = low;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        high = Character();
      }
      if (high < low) Fail("a range is the wrong way round");
      ranges.emplace_back(low, high);
    }
    if (error_) return {};
    ranges = Normalized(std::move(ranges));
    return builder_.CodePoints(inverted ? Complement(ranges) : ranges, TextForm::kPlain);
  }

  uint32_t Character() {
    if (at_end()) return 0;
    if (!Take("\\")) {
      size_t length = 0;
      if (ClassifyUtf8(text_.substr(at_), &length) != Utf8Prefix::kComplete) {
        Fail("it is not UTF-8");
        return 0;
      }
      const uint32_t c = FirstCodePoint(text_.substr(at_), &length);
      at_ += length;
      return c;
    }
    const char c = peek();
    if (!at_end()) ++at_;
    switch (c) {
      case 'n': return '\n';
      case 't': return '\t';
      case 'r': return '\r';
      case 'x': return Hex(2);
      case 'u': return Hex(4);
      case 'U': return Hex(8);
      case '"':
      case '\\':
      case '[':
      case ']':
      case '-':
      case '^':
      case '/':
      case '.': return static_cast<uint32_t>(c);
      default: Fail("an escape is not one of \\n \\t \\r \\x \\u \\U \\\" \\\\ \\[ \\] \\- \\^");
    }
    return 0;
  }

  uint32_t Hex(int num_digits) {
    uint32_t value = 0;
    for (int i = 0; i < num_digits; ++i, ++at_) {
      const char c = peek();
      const char lower = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9') {
        value = value << 4 | static_cast<uint32_t>(c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        value = value << 4 | static_cast<uint32_t>(lower - 'a' + 10);
      } else {
        Fail("an escape needs " + std::to_string(num_digits) + " hexadecimal digits");
        return 0;
      }
    }
    if (value > kMaxCodePoint || (value >= 0xD800 && value <= 0xDFFF))
      Fail("an escape names no character");
    return value;
  }

  const std::string_view text_;
  GrammarBuilder& builder_;
  size_t at_ = 0;
  std::map<std::string, Rule> rules_;
  std::optional<Status> error_;
};

}  // namespace

Result<GrammarBuilder::Rule> AddGbnf(std::string_view text, GrammarBuilder& builder) {
  return GbnfParser(text, builder).Parse();
}

}  // namespace lamina
