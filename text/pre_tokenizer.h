// The "pre_tokenizer" of a tokenizer.json: divides text into words, across which nothing is merged.
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
  // What `node`, the value of "pre_tokenizer", describes: ByteLevel, Split, Digits, Punctuation,
  // Metaspace, Sequence of such. kUnimplemented: another kind; kInvalidArgument.
  static Result<PreTokenizer> Read(const JsonNode& node);

  // The words of a text, and the storage of those that are not part of it. Not empty.
  struct Words {
    std::vector<std::string_view> words;
    std::deque<std::string> storage;
  };

  // `is_start`: `text` stands at the very beginning of what is tokenised. Borrows `text`, which is
  // valid UTF-8. Errors as Regex::ForEachMatch.
  Result<Words> Divide(std::string_view text, bool is_start, const TimeBudget& budget) const;

  // Words go to a vocabulary that is spelled in bytes.
  bool is_byte_level() const { return is_byte_level_; }
  bool drops_text() const { return drops_text_; }  // some text is in no word

 private:
  enum class Behavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
  enum class Prefix { kNever, kFirst, kAlways };
  // With a pattern: divides. Without: writes each space as `mark` and puts one in front of a word
  // that has none.
  struct Step {
    std::unique_ptr<Regex> pattern;
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;  // what the pattern does not find counts as found
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
  int num_marks_ = 0;  // Metaspace
  bool is_byte_level_ = false;
  bool drops_text_ = false;
};

}  // namespace lamina
