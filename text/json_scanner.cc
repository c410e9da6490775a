#include "text/json_scanner.h"

#include <cctype>
#include <string_view>

namespace lamina {
namespace {

// No number that anybody means is longer.
constexpr size_t kMaxScalarBytes = 512;

bool IsJsonSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

bool TakeDigits(std::string_view& text) {
  size_t count = 0;
  while (count < text.size() && text[count] >= '0' && text[count] <= '9') ++count;
  text.remove_prefix(count);
  return count > 0;
}

bool IsJsonNumber(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  if (text.starts_with('0')) {
    text.remove_prefix(1);
  } else if (!TakeDigits(text)) {
    return false;
  }
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (!TakeDigits(text)) return false;
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
    if (!TakeDigits(text)) return false;
  }
  return text.empty();
}

bool IsJsonScalar(std::string_view text) {
  return text == "true" || text == "false" || text == "null" || IsJsonNumber(text);
}

}  // namespace

JsonScanner::State JsonScanner::Push(char c) {
  event_ = Event::kNone;
  const bool fits = open_.empty() ? (c == '{' || c == '[') && BeginValue(c) : Step(c);
  if (!fits) return State::kBad;
  return open_.empty() ? State::kDone : State::kMore;
}

bool JsonScanner::Step(char c) {
  if (expected_ == Expected::kInScalar) {
    const bool ends = IsJsonSpace(c) || c == ',' || c == '}' || c == ']';
    if (!ends) {
      scalar_ += c;
      return scalar_.size() <= kMaxScalarBytes;
    }
    if (!IsJsonScalar(scalar_)) return false;
    EndValue();
  }
  switch (expected_) {
    case Expected::kInString:
    case Expected::kEscaped:
    case Expected::kHex: return InString(c);
    default: break;
  }
  if (IsJsonSpace(c)) return true;
  if (c == '}' || c == ']') return Close(c);
  switch (expected_) {
    case Expected::kKey:
    case Expected::kKeyOrEnd:
      is_key_ = true;
      expected_ = Expected::kInString;
      return c == '"';
    case Expected::kColon: expected_ = Expected::kValue; return c == ':';
    case Expected::kCommaOrEnd:
      expected_ = open_.back() == '{' ? Expected::kKey : Expected::kValue;
      return c == ',';
    case Expected::kValue:
    case Expected::kValueOrEnd: return BeginValue(c);
    default: return false;
  }
}

bool JsonScanner::BeginValue(char c) {
  if (c == '{' || c == '[') {
    if (open_.size() == kMaxDepth) return false;
    open_ += c;
    expected_ = c == '{' ? Expected::kKeyOrEnd : Expected::kValueOrEnd;
    event_ = Event::kContainerBegan;
  } else if (c == '"') {
    is_key_ = false;
    expected_ = Expected::kInString;
  } else {
    scalar_.assign(1, c);
    expected_ = Expected::kInScalar;
    return std::string_view("-0123456789tfn").find(c) != std::string_view::npos;
  }
  return true;
}

bool JsonScanner::InString(char c) {
  if (expected_ == Expected::kHex) {
    if (--num_hex_ == 0) expected_ = Expected::kInString;
    return std::isxdigit(static_cast<unsigned char>(c)) != 0;
  }
  if (expected_ == Expected::kEscaped) {
    expected_ = c == 'u' ? Expected::kHex : Expected::kInString;
    num_hex_ = 4;
    return std::string_view("\"\\/bfnrtu").find(c) != std::string_view::npos;
  }
  if (c == '\\') expected_ = Expected::kEscaped;
  if (c != '"') return true;
  event_ = is_key_ ? Event::kKeyEnded : Event::kStringEnded;
  if (is_key_) {
    expected_ = Expected::kColon;
  } else {
    EndValue();
  }
  return true;
}

bool JsonScanner::Close(char c) {
  const bool may_end = expected_ == Expected::kCommaOrEnd || expected_ == Expected::kKeyOrEnd ||
                       expected_ == Expected::kValueOrEnd;
  if (!may_end || (open_.back() == '{') != (c == '}')) return false;
  open_.pop_back();
  event_ = Event::kContainerEnded;
  EndValue();
  return true;
}

void JsonScanner::EndValue() {
  expected_ = open_.empty() ? Expected::kNothing : Expected::kCommaOrEnd;
}

}  // namespace lamina
