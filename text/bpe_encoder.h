// Byte-pair encoding as SentencePiece does it: the pair of neighbours whose union has the best
// score is merged first, the leftmost of equals.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/added_tokens.h"
#include "text/sentencepiece_model.h"
#include "text/time_budget.h"

namespace lamina {

// Thread: any; immutable.
class BpeEncoder {
 public:
  explicit BpeEncoder(const SentencePieceModel& model);  // borrows

  // The ids of `text`, appended to `ids`. Takes n log n time; errors of the budget. REQUIRES: valid
  // UTF-8 of less than 2 GiB.
  Status Encode(std::string_view text, const TimeBudget& budget, std::vector<TokenId>& ids) const;

  // kNotFound as -1. Special and byte pieces are found by their spelling too.
  TokenId Find(std::string_view piece) const;

 private:
  struct Symbol;
  struct Pair;
  class Merger;

  std::string Normalize(std::string_view text) const;
  const SentencePieceModel& model_;
  // Normal, user-defined and unused pieces.
  std::unordered_map<std::string_view, TokenId> mergeable_;
  std::unordered_map<std::string_view, TokenId> reserved_;  // the others
  AddedTokenFinder user_defined_;
  size_t max_piece_bytes_ = 0;  // of mergeable_
};

}  // namespace lamina
