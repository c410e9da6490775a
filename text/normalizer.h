// The "normalizer" of a tokenizer.json: how text is changed before it is divided into words, for
// example brought into a Unicode normal form.
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
  // Reads `node`, the value of "normalizer": NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace,
  // Strip, or a Sequence of these. kUnimplemented: it is of another kind; kInvalidArgument: a value
  // is missing or wrong, or there are too many steps.
  static Result<Normalizer> Read(const JsonNode& node);

  // Returns the normalized text. kOutOfSpace: it would have more than `max_bytes` bytes, or takes
  // longer than `budget` allows; kTryAgain: the thread's StopScope was told to stop. REQUIRES:
  // `text` is valid UTF-8.
  Result<std::string> Apply(std::string text, size_t max_bytes, const TimeBudget& budget) const;

  // The factor by which a text may become shorter at most, in bytes; nullopt if it may vanish.
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
  void MayShrink(size_t factor);  // accounts for one more step
  static Result<std::string> Apply(const Step& step, std::string text, size_t max_bytes,
                                   const TimeBudget& budget);

  std::vector<Step> steps_;
  std::optional<size_t> max_shrink_ = 1;
};

// Reads the "pattern" of a step, which is {"String": text} or {"Regex": expression}. Normalizers,
// pre-tokenizers and decoders share this form. kUnimplemented: another form, or an expression that
// is not supported; kInvalidArgument: it is missing or cannot be compiled.
Result<std::unique_ptr<Regex>> ReadPattern(const JsonNode& step);

}  // namespace lamina
