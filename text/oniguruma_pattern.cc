#include "text/oniguruma_pattern.h"

#include <algorithm>
#include <array>

namespace lamina {
namespace {

// Oniguruma's sets, as the content of a PCRE2 class. PCRE2's own \s has U+180E as well; its \w
// lacks marks, connectors and circled letters.
constexpr std::string_view kSpaces = R"(\p{Z}\t-\r\x{85})";
constexpr std::string_view kWords =
    R"(\p{L}\p{M}\p{N}\p{Pc}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
constexpr std::string_view kHexDigits = "0-9a-fA-F";

class Translation {
 public:
  explicit Translation(std::string_view pattern) : rest_(pattern) {}

  Result<std::string> Run() {
    while (!rest_.empty() && status_.ok()) {
      if (rest_.front() == '\\') {
        Escape();
      } else if (in_class_) {
        InClass();
      } else {
        Outside();
      }
    }
    if (!status_.ok()) return status_;
    return out_;
  }

 private:
  void Keep(size_t n) {
    n = std::min(n, rest_.size());
    out_ += rest_.substr(0, n);
    rest_.remove_prefix(n);
  }

  void Replace(size_t n, std::string_view with) {
    out_ += with;
    rest_.remove_prefix(n);
  }

  void Refuse(std::string_view what) {
    status_ = Unimplemented("the regular expression uses " + std::string(what) +
                            ", which lamina does not read");
  }

  void Outside() {
    if (rest_.starts_with("(?")) return Group();
    if (rest_.starts_with("(*")) return Refuse("\"(*\"");
    if (rest_.front() == '[') {
      in_class_ = true;
      Keep(rest_.starts_with("[^") ? 2 : 1);
      if (rest_.starts_with("]")) Refuse("a class that begins with ]");
      return;
    }
    if (rest_.starts_with("{,")) return Refuse("{, (an interval without a lower end)");
    if (rest_.starts_with("}+"))
      return Refuse("}+ (a possessive interval in PCRE, a repeated one in Oniguruma)");
    Keep(1);
  }

  void Group() {
    constexpr std::array<std::string_view, 8> kGroups = {"(?:",  "(?=",  "(?!",  "(?>",
                                                         "(?<=", "(?<!", "(?i:", "(?-i:"};
    for (const std::string_view group : kGroups) {
      if (rest_.starts_with(group)) return Keep(group.size());
    }
    if (rest_.starts_with("(?i)") && out_.empty()) return Keep(4);  // elsewhere its scope differs
    Refuse("\"" + std::string(rest_.substr(0, 4)) + "\"");
  }

  void InClass() {
    if (rest_.starts_with("&&")) return Refuse("&& (the intersection of classes)");
    if (rest_.starts_with("[:")) {
      const size_t end = rest_.find(":]");
      return end == std::string_view::npos ? Refuse("[: without :]") : Keep(end + 2);
    }
    if (rest_.front() == '[') return Refuse("a class within a class");
    if (rest_.front() == ']') in_class_ = false;
    Keep(1);
  }

  // REQUIRES: rest_ starts with a backslash.
  void Escape() {
    const char kind = rest_.size() > 1 ? rest_[1] : '\0';
    switch (kind) {
      case 's': return Set(kSpaces, false);
      case 'S': return Set(kSpaces, true);
      case 'w': return Set(kWords, false);
      case 'W': return Set(kWords, true);
      case 'h': return Set(kHexDigits, false);
      case 'H': return Set(kHexDigits, true);
      case 'v': return Replace(2, "\\x0b");
      case 'u': return Utf16();
      case 'x': return Hex();
      case 'p':
      case 'P': return Property();
      case 'A':
      case 'z':
        if (in_class_) break;
        return Keep(2);
      case 'd':
      case 'D':
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'a':
      case 'e': return Keep(2);
      default: break;
    }
    const bool letter = (kind >= 'a' && kind <= 'z') || (kind >= 'A' && kind <= 'Z') ||
                        (kind >= '0' && kind <= '9') || kind == '\0';
    if (letter) return Refuse("\"" + std::string(rest_.substr(0, 2)) + "\"");
    Keep(2);
  }

  void Set(std::string_view content, bool negated) {
    if (in_class_ && negated)
      return Refuse("\"" + std::string(rest_.substr(0, 2)) + "\" within a class");
    Replace(2,
            in_class_ ? std::string(content) : (negated ? "[^" : "[") + std::string(content) + "]");
  }

  static bool IsHex(std::string_view digits) {
    return std::all_of(digits.begin(), digits.end(),
                       [](char c) { return kHexCharacters.find(c) != std::string_view::npos; });
  }

  void Utf16() {
    if (rest_.size() < 6 || !IsHex(rest_.substr(2, 4))) return Refuse("\\u without four digits");
    Replace(6, "\\x{" + std::string(rest_.substr(2, 4)) + "}");
  }

  // Below 0x80: above, \xHH is a byte of UTF-8 to Oniguruma and a character to PCRE2.
  void Hex() {
    if (rest_.starts_with("\\x{")) return Keep(3);
    if (rest_.size() < 4 || !IsHex(rest_.substr(2, 2)) || rest_[2] > '7')
      return Refuse("\\x other than \\x00 to \\x7F and \\x{...}");
    Keep(4);
  }

  void Property() {
    const size_t end = rest_.find('}');
    if (rest_.size() < 3 || rest_[2] != '{' || end == std::string_view::npos)
      return Refuse("\\p without {...}");
    Keep(end + 1);
  }

  static constexpr std::string_view kHexCharacters = "0123456789abcdefABCDEF";

  std::string_view rest_;
  std::string out_;
  bool in_class_ = false;
  Status status_;
};

}  // namespace

Result<std::string> TranslateOniguruma(std::string_view pattern) {
  return Translation(pattern).Run();
}

}  // namespace lamina
