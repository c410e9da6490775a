#include "text/ranked_bpe.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <queue>
#include <utility>

#include "text/byte_alphabet.h"
#include "text/sentencepiece_model.h"
#include "text/utf8.h"

namespace lamina {
namespace {

constexpr size_t kWorkPerCharacter = 4;  // what TimeWatch counts
constexpr size_t kWorkPerMerge = 16;

// Ids may have gaps, but not so many that a small file needs much memory.
int64_t MaxId(size_t num_pieces) { return static_cast<int64_t>(num_pieces) * 4 + (1 << 16); }

// Bytes up to the first space that stands behind something else than a space; all if there is none.
size_t BytesBeforeInnerSpace(std::string_view text) {
  for (size_t at = text.find(kSpaceMark); at != std::string_view::npos;
       at = text.find(kSpaceMark, at + kSpaceMark.size())) {
    if (at > 0 && !text.substr(0, at).ends_with(kSpaceMark)) return at;
  }
  return text.size();
}

std::string SpellFallback(size_t byte) {
  char text[8];
  std::snprintf(text, sizeof(text), "<0x%02X>", static_cast<unsigned>(byte));
  return text;
}

}  // namespace

void RankedBpe::MergeTable::Reserve(size_t num_merges) {
  slots_ = std::vector<Slot>(std::bit_ceil(num_merges * 2 + 2));
}

// Fibonacci hashing (Knuth 6.4), then linear probing.
size_t RankedBpe::MergeTable::SlotOf(uint64_t key) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 32) & mask;
  while (slots_[slot].key != kFree && slots_[slot].key != key) slot = (slot + 1) & mask;
  return slot;
}

void RankedBpe::MergeTable::Set(TokenId left, TokenId right, Merge merge) {
  const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  slots_[SlotOf(key)] = {key, merge};
}

const RankedBpe::Merge* RankedBpe::MergeTable::Find(TokenId left, TokenId right) const {
  const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  const Slot& slot = slots_[SlotOf(key)];
  return slot.key == kFree ? nullptr : &slot.merge;
}

// One word's way from characters to tokens.
class RankedBpe::Word {
 public:
  explicit Word(const RankedBpe& bpe) : bpe_(bpe) {}

  void Add(TokenId id) {
    const int at = static_cast<int>(symbols_.size());
    symbols_.push_back({id, at - 1, at + 1});
  }

  Status MergeAll(TimeWatch& watch) {
    if (symbols_.empty()) return OkStatus();
    symbols_.back().next = -1;
    for (size_t i = 1; i < symbols_.size(); ++i)
      Consider(static_cast<int>(i) - 1, static_cast<int>(i));
    while (!queue_.empty()) {
      const Pair pair = queue_.top();
      queue_.pop();
      Apply(pair);
      LAMINA_RETURN_IF_ERROR(watch.Did(kWorkPerMerge));
    }
    return OkStatus();
  }

  void Emit(std::vector<TokenId>& ids) const {
    for (int i = symbols_.empty() ? -1 : 0; i >= 0; i = symbols_[static_cast<size_t>(i)].next) {
      ids.push_back(symbols_[static_cast<size_t>(i)].id);
    }
  }

 private:
  struct Symbol {
    TokenId id;  // kGone: merged into the one before
    int prev;
    int next;
  };
  struct Pair {
    uint32_t rank;
    int left;
    TokenId merged;  // tells pairs that are out of date

    bool operator<(const Pair& other) const {
      return rank > other.rank || (rank == other.rank && left > other.left);
    }  // the queue's top is the first in the list
  };
  static constexpr TokenId kGone = -1;

  Symbol& At(int i) { return symbols_[static_cast<size_t>(i)]; }

  void Consider(int left, int right) {
    if (left < 0 || right < 0) return;
    const Merge* merge = bpe_.merges_.Find(At(left).id, At(right).id);
    if (merge != nullptr) queue_.push({merge->rank, left, merge->id});
  }

  void Apply(const Pair& pair) {
    Symbol& left = At(pair.left);
    if (left.id == kGone || left.next < 0) return;
    Symbol& right = At(left.next);
    const Merge* merge = bpe_.merges_.Find(left.id, right.id);
    if (merge == nullptr || merge->id != pair.merged) return;
    left.id = pair.merged;
    left.next = right.next;
    right.id = kGone;
    if (left.next >= 0) At(left.next).prev = pair.left;
    Consider(left.prev, pair.left);
    Consider(pair.left, left.next);
  }

  const RankedBpe& bpe_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Pair> queue_;
};

Status RankedBpe::Encode(std::string_view word, TimeWatch& watch, std::vector<TokenId>& ids) const {
  if (ignore_merges_) {
    if (const auto found = whole_words_.find(word); found != whole_words_.end())
      return ids.push_back(found->second), OkStatus();
  }
  Word symbols(*this);
  bool after_unknown = false;
  for (size_t at = 0; at < word.size();) {
    size_t length = 1;
    if (!byte_level_) ClassifyUtf8(word.substr(at), &length);
    const std::string_view character = word.substr(at, length);
    at += length;
    LAMINA_RETURN_IF_ERROR(watch.Did(kWorkPerCharacter));
    const std::optional<TokenId> id = byte_level_ ? std::nullopt : Find(character);
    const auto byte_id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
    const bool as_bytes =
        (byte_level_ || byte_fallback_) &&
        std::all_of(character.begin(), character.end(), [&](char c) { return byte_id(c) >= 0; });
    if (id) {
      symbols.Add(*id);
    } else if (as_bytes) {
      for (const char c : character) symbols.Add(byte_id(c));
    } else if (unk_ && !(fuse_unk_ && after_unknown)) {
      symbols.Add(*unk_);
    }
    after_unknown = !id && !as_bytes;
  }
  LAMINA_RETURN_IF_ERROR(symbols.MergeAll(watch));
  symbols.Emit(ids);
  return OkStatus();
}

size_t RankedBpe::FirstPart(std::string_view word) const {
  return cuts_at_spaces_ ? BytesBeforeInnerSpace(word) : word.size();
}

std::optional<TokenId> RankedBpe::Find(std::string_view spelled) const {
  const auto found = ids_.find(std::string(spelled));
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

Result<RankedBpe> RankedBpe::Read(const JsonNode& model, bool byte_level) {
  RankedBpe bpe;
  bpe.byte_level_ = byte_level;
  if (model.Has("type")) {  // some old files have none
    LAMINA_ASSIGN_OR_RETURN(const JsonNode type, model.Get("type"));
    if (type.value() != "BPE") {
      return type.Unsupported(
          "understood is BPE. If the checkpoint also has a SentencePiece tokenizer.model of kind "
          "BPE, remove tokenizer.json");
    }
  }
  LAMINA_RETURN_IF_ERROR(bpe.ReadVocab(model));
  LAMINA_RETURN_IF_ERROR(bpe.ReadOptions(model));
  LAMINA_RETURN_IF_ERROR(bpe.ReadMerges(model));
  bpe.FindBytes(byte_level);
  return bpe;
}

Status RankedBpe::ReadVocab(const JsonNode& model) {
  LAMINA_ASSIGN_OR_RETURN(const JsonNode vocab, model.Get("vocab"));
  if (!vocab.value().is_object()) return vocab.Invalid("an object from token to id");
  const int64_t max_id = MaxId(vocab.value().size());
  ids_.reserve(vocab.value().size());
  for (const auto& [spelled, value] : vocab.value().items()) {
    const JsonNode node(value, vocab.path());
    if (spelled.size() > kMaxPieceBytes) {
      return InvalidArgument(vocab.path() + ": the token \"" + Shortened(spelled, 80) + "\" has " +
                             std::to_string(spelled.size()) + " bytes, expected at most " +
                             std::to_string(kMaxPieceBytes));
    }
    const Result<int64_t> id = node.Int(0, max_id);
    if (!id.ok()) return id.status().WithContext("the id of \"" + spelled.substr(0, 80) + "\"");
    if (pieces_.size() <= static_cast<size_t>(*id)) pieces_.resize(static_cast<size_t>(*id) + 1);
    pieces_[static_cast<size_t>(*id)] = spelled;
    ids_.emplace(spelled, static_cast<TokenId>(*id));
  }
  return OkStatus();
}

Status RankedBpe::ReadOptions(const JsonNode& model) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    LAMINA_ASSIGN_OR_RETURN(const std::string text, model.Text(key, ""));
    if (text.empty()) continue;
    LAMINA_ASSIGN_OR_RETURN(const JsonNode node, model.Get(key));
    return node.Unsupported("understood is null");
  }
  if (model.Has("dropout")) {
    LAMINA_ASSIGN_OR_RETURN(const JsonNode dropout, model.Get("dropout"));
    if (dropout.value() != 0)
      return dropout.Unsupported("understood is null: texts are tokenised in one way only");
  }
  LAMINA_ASSIGN_OR_RETURN(byte_fallback_, model.Flag("byte_fallback", false));
  LAMINA_ASSIGN_OR_RETURN(ignore_merges_, model.Flag("ignore_merges", false));
  LAMINA_ASSIGN_OR_RETURN(fuse_unk_, model.Flag("fuse_unk", false));
  LAMINA_ASSIGN_OR_RETURN(const std::string unk, model.Text("unk_token", ""));
  if (unk.empty()) return OkStatus();  // a vocabulary may have a token without text
  unk_ = Find(unk);
  if (!unk_)
    return InvalidArgument(model.path() + ".unk_token is \"" + Shortened(unk, 80) +
                           "\", which is not in the vocabulary");
  return OkStatus();
}

Status RankedBpe::ReadMerges(const JsonNode& model) {
  LAMINA_ASSIGN_OR_RETURN(const JsonNode merges, model.Get("merges"));
  LAMINA_ASSIGN_OR_RETURN(const std::vector<JsonNode> entries, merges.Entries());
  merges_.Reserve(entries.size());
  uint32_t rank = 0;
  for (const JsonNode& entry : entries) LAMINA_RETURN_IF_ERROR(AddMerge(entry, rank++));
  return OkStatus();
}

// "a b", or ["a", "b"] in newer files.
Status RankedBpe::AddMerge(const JsonNode& entry, uint32_t rank) {
  const nlohmann::json& value = entry.value();
  std::string left, right;
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string()) {
    left = value[0].get<std::string>();
    right = value[1].get<std::string>();
  } else if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
      return entry.Invalid("two tokens with a space between");
    left = text.substr(0, space);
    right = text.substr(space + 1);
  } else {
    return entry.Invalid("\"LEFT RIGHT\" or [\"LEFT\", \"RIGHT\"]");
  }
  const auto left_id = ids_.find(left), right_id = ids_.find(right),
             merged_id = ids_.find(left + right);
  for (const auto& [id, text] :
       {std::pair(left_id, left), std::pair(right_id, right), std::pair(merged_id, left + right)}) {
    if (id == ids_.end())
      return InvalidArgument(entry.path() + ": \"" + text.substr(0, 80) +
                             "\" is not in model.vocab");
  }
  joins_spaces_ |= BytesBeforeInnerSpace(merged_id->first) < merged_id->first.size();
  merges_.Set(left_id->second, right_id->second, {rank, merged_id->second});
  return OkStatus();
}

void RankedBpe::FindBytes(bool byte_level) {
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    byte_ids_[byte] =
        Find(byte_level ? SpellByte(static_cast<unsigned char>(byte)) : SpellFallback(byte))
            .value_or(-1);
  }
  const bool has_all_bytes =
      std::all_of(byte_ids_.begin(), byte_ids_.end(), [](TokenId id) { return id >= 0; });
  cuts_at_spaces_ =
      !byte_level && !joins_spaces_ && !ignore_merges_ && Find(kSpaceMark).has_value();
  loses_nothing_ = has_all_bytes && (byte_level || byte_fallback_);
  if (!ignore_merges_) return;
  for (const auto& [spelled, id] : ids_) {
    std::string text;
    if (!byte_level) text = spelled;
    if (byte_level && !ReadSpelledBytes(spelled, text)) continue;
    whole_words_.emplace(whole_word_texts_.emplace_back(std::move(text)), id);
  }
}

}  // namespace lamina
