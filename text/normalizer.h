// The "normalizer" of a tokenizer.json: what happens to text before it is divided.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/json_node.h"
#include "text/regex.h"
#include "text/unicode.h"

namespace lamina {

// Thread: any; immutable after reading.
class Normalizer {
 public:
  // What `node`, the value of "normalizer", describes: NFC, NFD, NFKC, NFKD, Lowercase, Prepend,
  // Replace, Strip, Sequence of such. kUnimplemented: another kind; kInvalidArgument.
  static Result<Normalizer> Read(const JsonNode& node);

  // At most `max_bytes` bytes. Errors as Regex::ReplaceAll. REQUIRES: valid UTF-8.
  Result<std::string> Apply(std::string text, size_t max_bytes, const TimeBudget& budget) const;

  // A text becomes shorter by this factor at most; nullopt: it may vanish.
  std::optional<size_t> max_shrink() const { return max_shrink_; }

 private:
  struct Step {
    enum class Kind { kForm, kLowercase, kPrepend, kReplace, kStrip };
    Kind kind = Kind::kForm;
    NormalForm form = NormalForm::kNfc;
    std::string content;             // kPrepend, kReplace
    std::unique_ptr<Regex> pattern;  // kReplace
    bool left = false;               // kStrip
    bool right = false;
  };

  Status Add(const JsonNode& node, int depth);
  Status AddReplace(const JsonNode& node);
  void MayShrink(size_t factor);  // by one more step
  static Result<std::string> Apply(const Step& step, std::string text, size_t max_bytes,
                                   const TimeBudget& budget);

  std::vector<Step> steps_;
  std::optional<size_t> max_shrink_ = 1;
};

// The "pattern" of a step: {"String": text} or {"Regex": expression}.
Result<std::unique_ptr<Regex>> ReadPattern(const JsonNode& step);

}  // namespace lamina
