// Follows JSON that comes character by character, and says where its parts begin and end.
#pragma once

#include <string>

namespace lamina {

// One object or list, as RFC 8259 has it, but for control characters, which strings may have here:
// models write line breaks into them. UTF-8 is not checked. Thread: one.
class JsonScanner {
 public:
  enum class State { kMore, kDone, kBad };

  // Takes the next character; the first one is '{' or '['. kDone: it was the last one. kBad: this
  // is no JSON, or is nested more than kMaxDepth deep. Nothing may follow either.
  State Push(char c);

  static constexpr size_t kMaxDepth = 256;
  size_t depth() const { return open_.size(); }  // how many objects and lists are open

  // What the last character did. Scalars end with the character behind them, which is not told.
  enum class Event { kNone, kKeyEnded, kStringEnded, kContainerBegan, kContainerEnded };
  Event event() const { return event_; }

  bool in_string() const { return expected_ == Expected::kInString; }

 private:
  enum class Expected {
    kValue,
    kValueOrEnd,
    kKey,
    kKeyOrEnd,
    kColon,
    kCommaOrEnd,
    kInString,
    kEscaped,
    kHex,
    kInScalar,
    kNothing,
  };

  bool Step(char c);  // false: it may not stand here
  bool BeginValue(char c);
  bool InString(char c);
  bool Close(char c);
  void EndValue();

  std::string open_;  // '{' and '[' of what is open
  Expected expected_ = Expected::kValue;
  Event event_ = Event::kNone;
  bool is_key_ = false;  // of the string
  int num_hex_ = 0;      // digits that are still to come
  std::string scalar_;
};

}  // namespace lamina
