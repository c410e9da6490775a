// Byte-pair encoding as the Hugging Face tokenizers do it: a list of merges, of which the earliest
// in the list is applied first, the leftmost of equals. The "model" of a tokenizer.json.
//
// SentencePiece's own models score pieces instead: bpe_encoder.h.
#pragma once

#include <array>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/json_node.h"
#include "text/time_budget.h"

namespace lamina {

// Thread: any; immutable after reading.
class RankedBpe {
 public:
  // Reads the value of "model". `byte_level` says that the vocabulary is spelled in the byte
  // alphabet. kUnimplemented if it is another kind of model or has an option of BPE that is not
  // supported; kInvalidArgument if a value is missing or wrong.
  static Result<RankedBpe> Read(const JsonNode& model, bool byte_level);

  RankedBpe(RankedBpe&&) = default;
  RankedBpe& operator=(RankedBpe&&) = default;

  // Appends the ids of `word` to `ids`, in n log n time. Returns the budget's error when that is
  // over. REQUIRES: `word` is valid UTF-8 of less than 2 GiB.
  Status Encode(std::string_view word, TimeWatch& watch, std::vector<TokenId>& ids) const;

  // Bytes at the beginning of `word` whose tokens do not depend on the rest: all of it, or up to a
  // space (as U+2581) that no merge joins with what stands before it. Parts are encoded faster than
  // the whole. REQUIRES: not empty.
  size_t FirstPart(std::string_view word) const;

  std::optional<TokenId> Find(std::string_view spelled) const;

  // The tokens by id, as the file spells them; "" where there is none.
  const std::vector<std::string>& pieces() const { return pieces_; }

  // Whether no text becomes fewer tokens than its bytes divided by the longest piece's.
  bool loses_nothing() const { return loses_nothing_; }

 private:
  struct Merge {
    uint32_t rank = 0;
    TokenId id = 0;
  };
  // From a pair of ids to what they become: open addressing, since each merged pair asks three
  // times.
  class MergeTable {
   public:
    void Reserve(size_t num_merges);
    void Set(TokenId left, TokenId right, Merge merge);  // replaces
    const Merge* Find(TokenId left, TokenId right) const;

   private:
    static constexpr uint64_t kFree = ~uint64_t{0};
    struct Slot {
      uint64_t key = kFree;
      Merge merge;
    };
    size_t SlotOf(uint64_t key) const;
    std::vector<Slot> slots_ = std::vector<Slot>(2);  // a power of two, at most half full
  };
  class Word;

  RankedBpe() = default;
  Status ReadVocab(const JsonNode& model);
  Status ReadMerges(const JsonNode& model);
  Status ReadOptions(const JsonNode& model);
  Status AddMerge(const JsonNode& entry, uint32_t rank);
  void FindBytes(bool byte_level);

  std::vector<std::string> pieces_;
  std::unordered_map<std::string, TokenId> ids_;  // by spelling
  // By what is looked for in text, if ignore_merges_.
  std::unordered_map<std::string_view, TokenId> whole_words_;
  // What the keys above view: one text for each spelling, as several spellings may have one id. A
  // deque does not move them.
  std::deque<std::string> whole_word_texts_;
  MergeTable merges_;
  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;  // a word that is in the vocabulary is not merged
  bool fuse_unk_ = false;
  bool joins_spaces_ = false;  // a merge joins a space with what stands before it
  bool cuts_at_spaces_ = false;
  bool loses_nothing_ = false;
  std::optional<TokenId> unk_;
  std::array<TokenId, 256> byte_ids_ = {};  // -1: none
};

}  // namespace lamina
