// Text to token ids and back.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace lamina {

// Where a text stands that is decoded token by token: value type, one for each text.
struct DecodeState {
  // Nothing but special tokens so far: a leading space that the encoder added is still to be
  // dropped.
  bool at_start = true;
  std::string incomplete;  // bytes whose characters are not certain yet
};

// Thread: any; immutable after loading.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // `text` is valid UTF-8. Special tokens written in it ("</s>") become their ids, as in the
  // Hugging Face tokenizers. With `add_special_tokens` the model's beginning-of-sequence token is
  // put in front (and the end token behind) if the checkpoint's configuration says so. kOutOfSpace:
  // the tokenizer's regular expressions take too long on this text.
  virtual Result<std::vector<TokenId>> Encode(std::string_view text,
                                              bool add_special_tokens) const = 0;

  // A lower bound of how many ids Encode gives, without its work: text that cannot fit need not be
  // encoded.
  virtual int64_t MinTokens(std::string_view text) const = 0;

  // Appends to `text` what `id` adds to it: whole characters only, the rest waits in `state`. Ids
  // outside the vocabulary add nothing (a model's vocabulary may be padded beyond its tokenizer's).
  virtual void Append(DecodeState& state, TokenId id, bool skip_special,
                      std::string& text) const = 0;

  // Appends what waits in `state`: nothing follows. Bytes that form no character become U+FFFD.
  virtual void Finish(DecodeState& state, std::string& text) const;

  // The bytes that `id` stands for in the middle of a text; may be part of a character. "" outside
  // the vocabulary; special tokens as they are written.
  virtual std::string TokenBytes(TokenId id) const = 0;

  // The vocabulary's own spelling ("▁the", "<0x0A>"); "" outside the vocabulary.
  virtual std::string IdToPiece(TokenId id) const = 0;

  virtual int64_t vocab_size() const = 0;  // largest id + 1
  virtual std::optional<TokenId> bos() const = 0;
  virtual std::optional<TokenId> eos() const = 0;

  // The text of a whole sequence; bytes that form no character become U+FFFD.
  std::string Decode(std::span<const TokenId> ids, bool skip_special) const;
};

// Reads the tokenizer of a Hugging Face checkpoint folder, with tokenizer_config.json if it is
// there: tokenizer.json, else or if that cannot be read (a warning says why) tokenizer.model
// (SentencePiece). kNotFound: there is no tokenizer; kUnimplemented: one of a kind that is not
// supported; kInvalidArgument: a file is broken. Messages name the file.
Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& dir);

}  // namespace lamina
