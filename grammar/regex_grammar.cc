#include "grammar/regex_grammar.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "text/utf8.h"

namespace lamina {
namespace {

constexpr int kMaxGroups = 100;  // inside of each other
constexpr int64_t kMaxCount = 1 << 20;
constexpr uint32_t kEndOfPattern = UINT32_MAX;

using Ranges = std::vector<CodePointRange>;

// The characters of \d, \w or \s. Python takes those of all scripts and ECMA 262 those of ASCII,
// and white space is not quite the same for both: `certain` are those on which they agree.
struct NamedCharacters {
  Ranges certain;
  Ranges possible;  // for one of them at least
};

template <typename Is>
Ranges AllThat(Is is) {
  Ranges ranges;
  for (uint32_t c = 0; c <= kMaxCodePoint; ++c) {
    if (!is(static_cast<UChar32>(c))) continue;
    if (!ranges.empty() && ranges.back().second + 1 == c)
      ranges.back().second = c;
    else
      ranges.emplace_back(c, c);
  }
  return ranges;
}

// REQUIRES: one of d, w, s.
const NamedCharacters& CharactersOf(uint32_t letter) {
  static const NamedCharacters digits = {{{'0', '9'}}, AllThat(&u_isdigit)};
  static const NamedCharacters word = {
      {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}, AllThat([](UChar32 c) {
        return (U_GET_GC_MASK(c) & (U_GC_L_MASK | U_GC_M_MASK | U_GC_N_MASK | U_GC_PC_MASK)) != 0;
      })};
  static const NamedCharacters spaces = {{{'\t', '\r'}, {' ', ' '}}, AllThat([](UChar32 c) {
                                           return u_isUWhiteSpace(c) || (c >= 0x1C && c <= 0x1F) ||
                                                  c == 0xFEFF;
                                         })};
  return letter == 'd' ? digits : letter == 'w' ? word : spaces;
}

// Of \d and the like. `inverted`: they stand in a class of what does not match.
std::optional<Ranges> NamedClass(uint32_t letter, bool inverted) {
  switch (letter) {
    case 'd':
    case 'w':
    case 's': return inverted ? CharactersOf(letter).possible : CharactersOf(letter).certain;
    case 'D':
    case 'W':
    case 'S': {
      const NamedCharacters& others = CharactersOf(letter | 0x20U);
      return Complement(inverted ? others.certain : others.possible);
    }
    default: return std::nullopt;
  }
}

// One alternative, and whether it holds to the ends of the text.
struct Branch {
  Fragment body;
  bool at_begin = false, at_end = false;
};

class RegexParser {
 public:
  RegexParser(std::string_view pattern, TextForm form, GrammarBuilder& builder)
      : builder_(builder), form_(form) {
    while (!pattern.empty()) {
      size_t length = 0;
      if (ClassifyUtf8(pattern, &length) != Utf8Prefix::kComplete) {
        Fail("it is not UTF-8");
        return;
      }
      pattern_.push_back(FirstCodePoint(pattern, &length));
      pattern.remove_prefix(length);
    }
  }

  Result<std::vector<Branch>> Parse() {
    std::vector<Branch> branches = Alternatives(0);
    if (ok() && peek() == ')') Fail("a ')' closes no group");
    if (!ok()) return *error_;
    return branches;
  }

 private:
  bool ok() const { return !error_; }
  uint32_t peek(size_t ahead = 0) const {
    return ok() && at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : kEndOfPattern;
  }
  bool Take(uint32_t c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void Fail(const std::string& why) {
    if (!error_)
      error_ = InvalidArgument("the regular expression, at character " + std::to_string(at_ + 1) +
                               ": " + why);
  }

  std::vector<Branch> Alternatives(int depth) {
    std::vector<Branch> branches;
    do {
      branches.push_back(ParseBranch(depth));
    } while (Take('|') && !builder_.is_full());
    return branches;
  }

  Branch ParseBranch(int depth) {
    Branch branch;
    std::vector<Fragment> parts;
    while (ok() && !builder_.is_full()) {
      const uint32_t c = peek();
      if (c == kEndOfPattern || c == '|' || c == ')') break;
      if (c == '^' || c == '$') {
        TakeAnchor(depth, parts.empty(), branch);
        continue;
      }
      if (branch.at_end) Fail("something stands behind '$', where nothing can match");
      const Fragment atom = Atom(depth);
      parts.push_back(Quantified(atom));
    }
    branch.body = builder_.Sequence(parts);
    return branch;
  }

  void TakeAnchor(int depth, bool first, Branch& branch) {
    const bool is_begin = peek() == '^';
    if (depth > 0 || (is_begin && !first))
      return Fail("'^' and '$' are supported at the ends of an alternative that is in no group");
    ++at_;
    (is_begin ? branch.at_begin : branch.at_end) = true;
  }

  Fragment Atom(int depth) {
    const uint32_t c = peek();
    if (c == '(') return Group(depth);
    if (c == '[') return OneOf(CharacterClass());
    if (c == '*' || c == '+' || c == '?') Fail("a quantifier follows nothing");
    ++at_;
    if (c == '.') {
      static const Ranges kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
      // Python takes '\n' alone for a line end, ECMA 262 all of these: what both agree on.
      return OneOf(Complement(kLineEnds));
    }
    if (c != '\\') return OneOf({{c, c}});
    if (const auto named = NamedClass(peek(), false)) {
      ++at_;
      return OneOf(*named);
    }
    const uint32_t escaped = Escaped(false);
    return OneOf({{escaped, escaped}});
  }

  Fragment Group(int depth) {
    ++at_;
    if (depth == kMaxGroups) Fail("groups are nested more than 100 deep");
    if (Take('?')) {
      if (Take('P')) {
        if (peek() != '<') Fail("backreferences are not supported");
      }
      if (peek() == '<' && (peek(1) == '=' || peek(1) == '!'))
        Fail("what looks behind ('(?<') is not supported");
      if (Take('<')) {
        while (ok() && peek() != '>' && peek() != kEndOfPattern) ++at_;
        if (!Take('>')) Fail("the name of a group has no end");
      } else if (peek() == '=' || peek() == '!') {
        Fail("what looks ahead ('(?=', '(?!') is not supported");
      } else if (!Take(':')) {
        Fail("flags and other groups that begin with '(?' are not supported");
      }
    }
    std::vector<Fragment> bodies;
    if (ok()) {
      for (const Branch& branch : Alternatives(depth + 1)) bodies.push_back(branch.body);
    }
    if (!Take(')')) Fail("a group has no ')'");
    return ok() ? builder_.AnyOf(bodies) : Fragment();
  }

  Fragment Quantified(Fragment atom) {
    int64_t min = 1;
    std::optional<int64_t> max = 1;
    bool counted = false;
    if (Take('*')) {
      min = 0;
      max = std::nullopt;
    } else if (Take('+')) {
      max = std::nullopt;
    } else if (Take('?')) {
      min = 0;
    } else if (!(counted = TakeCounts(min, max))) {
      return atom;
    }
    if (peek() == '+' && ok()) Fail("possessive quantifiers are not supported");
    Take('?');  // a lazy one has the same texts
    if (peek() == '*' || peek() == '?') Fail("a quantifier follows a quantifier");
    return ok() ? builder_.Repeat(atom, min, max) : atom;
  }

  // "{n}", "{n,}" or "{n,m}"; anything else is text, and false.
  bool TakeCounts(int64_t& min, std::optional<int64_t>& max) {
    if (peek() != '{') return false;
    const size_t before = at_++;
    const std::optional<int64_t> first = TakeNumber();
    bool matches = first.has_value();
    if (matches) {
      min = *first;
      max = first;
      if (Take(',')) max = TakeNumber();
      matches = Take('}');
    }
    if (!matches) {
      at_ = before;
      min = 1;
      max = 1;
      if (ok() && peek(1) == ',') Fail("write '{0,m}', not '{,m}'");
      if (ok()) Fail("'{' begins no count; write '\\{' for the character");
      return false;
    }
    if (max && *max < min) Fail("the counts of a quantifier are the wrong way round");
    if (min > kMaxCount || max.value_or(0) > kMaxCount)
      Fail("a count is above " + std::to_string(kMaxCount));
    return true;
  }

  std::optional<int64_t> TakeNumber() {
    if (peek() < '0' || peek() > '9') return std::nullopt;
    int64_t number = 0;
    while (peek() >= '0' && peek() <= '9')
      number = std::min(number * 10 + (pattern_[at_++] - '0'), kMaxCount + 1);
    return number;
  }

  // What follows a '\', as one character.
  uint32_t Escaped(bool in_class) {
    const uint32_t c = peek();
    if (c == kEndOfPattern) Fail("a '\\' stands at the end");
    ++at_;
    switch (c) {
      case 'n': return '\n';
      case 't': return '\t';
      case 'r': return '\r';
      case 'f': return '\f';
      case 'v': return '\v';
      case 'x': return Hex(2);
      case 'u': return Take('{') ? BracedHex() : CheckCharacter(Hex(4));
      case 'U': return CheckCharacter(Hex(8));
      case 'b':
        if (in_class) return '\b';
        break;
      case '0':
        if (peek() < '0' || peek() > '9') return 0;
        break;
      default: break;
    }
    const bool is_word = c < 128 && (std::isalnum(static_cast<int>(c)) != 0);
    if (ok() && is_word) {
      --at_;
      const std::string letter(1, static_cast<char>(c));
      Fail("'\\" + letter + "' is not supported" +
           (c >= '1' && c <= '9' ? ": what looks back at a group" : ""));
    }
    return c;
  }

  uint32_t Hex(int num_digits) {
    uint32_t value = 0;
    for (int i = 0; i < num_digits; ++i) {
      const std::optional<uint32_t> digit = HexDigit();
      if (!digit) {
        Fail("an escape needs " + std::to_string(num_digits) + " hexadecimal digits");
        return 0;
      }
      value = value << 4 | *digit;
    }
    return value;
  }

  uint32_t BracedHex() {
    uint32_t value = 0;
    int num_digits = 0;
    for (std::optional<uint32_t> digit; num_digits < 8 && (digit = HexDigit()); ++num_digits)
      value = value << 4 | *digit;
    if (num_digits == 0 || !Take('}')) Fail("'\\u{' needs hexadecimal digits and a '}'");
    return CheckCharacter(value);
  }

  std::optional<uint32_t> HexDigit() {
    const uint32_t c = peek();
    if (c > 'f') return std::nullopt;
    const bool is_digit = c >= '0' && c <= '9';
    const uint32_t letter = c | 0x20U;
    if (!is_digit && (letter < 'a' || letter > 'f')) return std::nullopt;
    ++at_;
    return is_digit ? c - '0' : letter - 'a' + 10;
  }

  uint32_t CheckCharacter(uint32_t c) {
    if (c > kMaxCodePoint || (c >= 0xD800 && c <= 0xDFFF)) Fail("an escape names no character");
    return ok() ? c : 0;
  }

  Ranges CharacterClass() {
    ++at_;
    const bool inverted = Take('^');
    Ranges ranges;
    if (peek() == ']') Fail("a class is empty, or begins with ']', which has to be written '\\]'");
    while (ok() && peek() != ']') {
      if (peek() == kEndOfPattern) Fail("a class has no ']'");
      if (peek() == '[' && peek(1) == ':') Fail("'[:' is not supported");
      if (peek() == '\\') {
        if (const auto named = NamedClass(peek(1), inverted)) {
          at_ += 2;
          ranges.insert(ranges.end(), named->begin(), named->end());
          if (peek() == '-' && peek(1) != ']') Fail("a range begins with a class");
          continue;
        }
      }
      const uint32_t low = ClassCharacter();
      uint32_t high = low;
      if (peek() == '-' && peek(1) != ']' && peek(1) != kEndOfPattern) {
        ++at_;
        if (peek() == '\\' && NamedClass(peek(1), inverted)) Fail("a range ends with a class");
        high = ClassCharacter();
        if (high < low) Fail("a range is the wrong way round");
      }
      ranges.emplace_back(low, high);
    }
    if (!ok()) return {};
    ++at_;
    ranges = Normalized(std::move(ranges));
    return inverted ? Complement(ranges) : ranges;
  }

  uint32_t ClassCharacter() {
    const uint32_t c = peek();
    if (c == kEndOfPattern) Fail("a class has no ']'");
    ++at_;
    return c == '\\' ? Escaped(true) : c;
  }

  Fragment OneOf(const Ranges& ranges) {
    return ok() ? builder_.CodePoints(Normalized(ranges), form_) : Fragment();
  }

  GrammarBuilder& builder_;
  const TextForm form_;
  std::vector<uint32_t> pattern_;
  size_t at_ = 0;
  std::optional<Status> error_;
};

}  // namespace

std::span<const CodePointRange> AllCodePoints() {
  static const Ranges all = Complement({});
  return all;
}

Result<Fragment> AddRegex(std::string_view pattern, const RegexOptions& options,
                          GrammarBuilder& builder) {
  LAMINA_ASSIGN_OR_RETURN(const std::vector<Branch> branches,
                          RegexParser(pattern, options.form, builder).Parse());
  const auto anything = [&] {
    return builder.Repeat(builder.CodePoints(AllCodePoints(), options.form), 0, std::nullopt);
  };
  std::vector<Fragment> bodies;
  for (const Branch& branch : branches) {
    Fragment body = branch.body;
    if (options.search && !branch.at_begin) body = builder.Sequence({anything(), body});
    if (options.search && !branch.at_end) body = builder.Sequence({body, anything()});
    bodies.push_back(body);
  }
  return builder.AnyOf(bodies);
}

}  // namespace lamina
