// The "pre_tokenizer" of a tokenizer.json: divides text into words. Byte-pair encoding merges
// within a word and never across two.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/json_node.h"
#include "text/regex.h"

namespace lamina {

// Thread: any; immutable after reading.
class PreTokenizer {
 public:
  // Reads `node`, the value of "pre_tokenizer": ByteLevel, Split, Digits, Punctuation, Metaspace,
  // or a Sequence of these. kUnimplemented: it is of another kind, or something follows a
  // ByteLevel; kInvalidArgument: a value is missing or wrong, or there are too many steps.
  static Result<PreTokenizer> Read(const JsonNode& node);

  // The words of a text, none of them empty. A word is a part of the text or, where marks were put
  // into it, of `storage`.
  struct Words {
    std::vector<std::string_view> words;
    std::deque<std::string> storage;
  };

  // Divides `text`, which the words borrow. `is_start` says that the text stands at the very
  // beginning of what is tokenized, not behind a special token. kOutOfSpace: it takes longer than
  // `budget` allows, or a regular expression gives up; kTryAgain: the thread's StopScope was told
  // to stop; kUnimplemented: an expression uses \K. REQUIRES: `text` is valid UTF-8.
  Result<Words> Divide(std::string_view text, bool is_start, const TimeBudget& budget) const;

  // Whether the vocabulary is spelled in the byte alphabet (byte_alphabet.h).
  bool is_byte_level() const { return is_byte_level_; }
  // Whether some text may be in no word ("Removed").
  bool drops_text() const { return drops_text_; }

 private:
  enum class Behavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
  enum class Prefix { kNever, kFirst, kAlways };
  // A step with a pattern divides words at what the pattern finds. A step without one writes each
  // space as `mark`, and puts a mark in front of words that do not begin with one, as `prefix`
  // says.
  struct Step {
    std::unique_ptr<Regex> pattern;
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;  // what the pattern does not match counts as matched
    std::string mark;
    Prefix prefix = Prefix::kAlways;
  };
  struct Span {
    size_t begin = 0;
    size_t end = 0;
    bool found = false;
  };

  Status Add(const JsonNode& node, int depth);
  Status AddByteLevel(const JsonNode& node);
  Status AddSplit(const JsonNode& node);
  Status AddMetaspace(const JsonNode& node);
  Status AddPattern(std::string_view pattern, Behavior behavior);
  static Result<Behavior> ReadBehavior(const JsonNode& node, std::string_view fallback);
  static Result<Prefix> ReadPrefix(const JsonNode& node);

  static Status Divide(const Step& step, std::string_view text, const TimeBudget& budget,
                       std::vector<std::string_view>& words);
  static void AddSpan(const Step& step, Span span, std::vector<Span>& spans);
  static void Mark(const Step& step, bool is_start, Words& words);

  std::vector<Step> steps_;
  int num_marks_ = 0;  // steps of the kind Metaspace
  bool is_byte_level_ = false;
  bool drops_text_ = false;
};

}  // namespace lamina
