// Byte-pair encoding as SentencePiece does it: the pair of neighbours whose union has the best score is merged first, the leftmost of
// equals.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "frontend/text/sentencepiece_model.h"

namespace lamina {

// Thread: any; immutable.
class BpeEncoder {
 public:
  explicit BpeEncoder(const SentencePieceModel& model);  // borrows

  // The ids of `text`, appended to `ids`. Takes n log n time. REQUIRES: valid UTF-8 of less than 2 GiB.
  void Encode(std::string_view text, std::vector<TokenId>& ids) const;

  // kNotFound as -1. Special and byte pieces are found by their spelling too.
  TokenId Find(std::string_view piece) const;

 private:
  struct Symbol;
  struct Pair;
  class Merger;

  std::string Normalize(std::string_view text) const;
  size_t UserDefinedLength(std::string_view text) const;

  const SentencePieceModel& model_;
  std::unordered_map<std::string_view, TokenId> mergeable_;  // normal, user-defined and unused pieces
  std::unordered_map<std::string_view, TokenId> reserved_;   // the others
  std::vector<std::vector<std::string_view>> user_defined_;  // by first byte, longest first
};

}  // namespace lamina
