// Text to token ids and back: the interface of all kinds of tokenizers, and LoadTokenizer, which
// reads the one that comes with a model.
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

// The state of one text that is decoded token by token. A new one stands at the beginning of a
// text. Copy it to decode several continuations of the same beginning.
struct DecodeState {
  // True while no text came, or only that of skipped special tokens: a space that the encoder put
  // in front of the text is still to be dropped.
  bool at_start = true;
  std::string incomplete;  // bytes that later tokens may complete to characters
  // Tokens that are single bytes are decoded together, and if their bytes are not characters from
  // the first to the last one, tokenizer.json has U+FFFD for each. With this, characters that are
  // whole come at once and stay: only bytes that belong to none become U+FFFD.
  bool characters_at_once = false;
};

// Gives the same ids and texts as the Hugging Face libraries do for the same files.
// Thread: any; immutable after loading.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Special tokens that are written in the text ("</s>") become their ids, as in the Hugging Face
  // tokenizers. With `add_special_tokens` the model's beginning-of-sequence token is put in front,
  // and the end-of-sequence token behind, if the checkpoint's configuration says so. kOutOfSpace:
  // the text takes too long or becomes too large on the way (see TokenizerTime); kTryAgain: the
  // thread's StopScope was told to stop. REQUIRES: `text` is valid UTF-8.
  virtual Result<std::vector<TokenId>> Encode(std::string_view text,
                                              bool add_special_tokens) const = 0;

  // A lower bound of how many ids Encode gives, found without encoding: a prompt that cannot fit is
  // refused before any work is done for it. 0 where nothing can be said.
  virtual int64_t MinTokens(std::string_view text) const = 0;

  // Decodes the next token: appends to `text` what `id` adds. Only whole characters are appended,
  // the bytes of an unfinished one wait in `state`. With `skip_special` special tokens add nothing.
  // Ids outside the vocabulary add nothing either, since a model's vocabulary may be padded beyond
  // its tokenizer's.
  virtual void Append(DecodeState& state, TokenId id, bool skip_special,
                      std::string& text) const = 0;

  // Ends the text: appends what waits in `state`, where bytes that form no character become U+FFFD.
  virtual void Finish(DecodeState& state, std::string& text) const;

  // The bytes that `id` stands for in the middle of a text, which may be a part of a character.
  // Special tokens are returned as they are written. "" outside the vocabulary.
  virtual std::string TokenBytes(TokenId id) const = 0;

  // The token as the vocabulary spells it ("▁the", "<0x0A>"); "" outside the vocabulary.
  virtual std::string IdToPiece(TokenId id) const = 0;

  virtual int64_t vocab_size() const = 0;  // largest id + 1; ids in between may be unused
  virtual std::optional<TokenId> bos() const = 0;
  virtual std::optional<TokenId> eos() const = 0;

  // Decodes a whole sequence. Bytes that form no character become U+FFFD.
  std::string Decode(std::span<const TokenId> ids, bool skip_special) const;
};

// Reads the tokenizer of a GGUF file (text/gguf_tokenizer.h), or of a Hugging Face checkpoint
// folder, and tokenizer_config.json if it is there. tokenizer.json comes first. If there is none,
// tokenizer.model (SentencePiece) is read; so it is if tokenizer.json cannot be used, and a warning
// in the log says why.
//
// kNotFound: there is no tokenizer; kUnimplemented: the tokenizer is of a kind that is not
// supported; kInvalidArgument, or kCorrupt for a GGUF file: a file is broken; kOutOfSpace: the
// tokenizer needs too much time or memory to be prepared. Messages name the file.
Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path);

// Ok if there is a tokenizer that LoadTokenizer would read. A folder's is not opened for that,
// since reading a large one takes a good part of a second, so that LoadTokenizer may still say that
// it is broken. Of a GGUF file, where the tokenizer is in the header, the kind is looked at too.
// Errors are those of LoadTokenizer.
Status CheckTokenizer(const std::string& path);

}  // namespace lamina
