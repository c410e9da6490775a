// The "decoder" of a tokenizer.json: makes text of tokens, one token at a time.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/json_node.h"
#include "text/regex.h"
#include "text/tokenizer.h"

namespace lamina {

// Thread: any; immutable after reading.
class TokenDecoder {
 public:
  // Without a decoder tokens are words with spaces between them.
  TokenDecoder() = default;

  // Reads `node`, the value of "decoder": ByteLevel, Metaspace, or a Sequence of Replace,
  // ByteFallback, Fuse and Strip in this order, any of them absent. kUnimplemented if it is of
  // another kind; kInvalidArgument if a value is missing or wrong.
  static Result<TokenDecoder> Read(const JsonNode& node);

  // What a token of the vocabulary means for the text, computed once.
  struct Token {
    std::string text;        // bytes, in the middle of a text; as part of a run of bytes if is_byte
    std::string first_text;  // and at its beginning, if has_first_text
    bool has_first_text = false;
    bool is_byte = false;
  };
  // Computes that for a token which the vocabulary spells `piece`. kOutOfSpace if it takes longer
  // than `budget` allows or a regular expression gives up; kTryAgain if the thread's StopScope was
  // told to stop.
  Result<Token> Prepare(std::string_view piece, const TimeBudget& budget) const;

  // Append adds to `text` what the next token adds to it, Finish what was held back when nothing
  // follows. A run of byte tokens waits in `state` until it ends: only then it is known whether it
  // is text or, if it is not all well-formed, U+FFFD for each byte.
  void Append(DecodeState& state, const Token& token, std::string& text) const;
  void Finish(DecodeState& state, std::string& text) const;

 private:
  enum class Kind { kWords, kByteLevel, kMetaspace, kSequence };

  Status ReadSequence(const JsonNode& node);
  Status ReadStep(const JsonNode& step, const std::string& type);
  Status ReadStrip(const JsonNode& step);
  void EndBytes(DecodeState& state, std::string& text) const;
  void AppendText(DecodeState& state, std::string_view added, std::string& text) const;

  Kind kind_ = Kind::kWords;
  std::string mark_;        // kMetaspace: what spaces are written as
  bool drop_mark_ = false;  // kMetaspace: none at the beginning of the text
  std::vector<std::pair<std::unique_ptr<Regex>, std::string>> replacements_;
  bool byte_fallback_ = false;
  bool fuse_ = false;
  std::string strip_;  // what is left out at the beginning of the text, once; "": nothing
};

}  // namespace lamina
