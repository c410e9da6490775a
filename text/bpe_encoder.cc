#include "text/bpe_encoder.h"

#include <algorithm>
#include <queue>

#include "text/utf8.h"

namespace lamina {
namespace {

// What TimeWatch counts.
constexpr size_t kWorkPerLookUp = 16;
constexpr size_t kHashedBytesPerWork = 16;

}  // namespace

// A part of the text; parts are linked in order. A merged-away part has length 0.
struct BpeEncoder::Symbol {
  int prev = -1;
  int next = -1;
  size_t begin = 0;
  size_t length = 0;
  bool frozen = false;  // user-defined: never merged
};

struct BpeEncoder::Pair {
  float score;
  int left;
  int right;
  size_t length;  // of the union when the pair was found: tells pairs that are out of date

  bool operator<(const Pair& other) const {
    return score < other.score || (score == other.score && left > other.left);
  }  // the queue's top is the best
};

// One text's way from characters to pieces.
class BpeEncoder::Merger {
 public:
  Merger(const BpeEncoder& encoder, std::string_view text, const TimeBudget& budget)
      : encoder_(encoder), text_(text), watch_(budget) {}

  Status Run(std::vector<TokenId>& ids) {
    LAMINA_RETURN_IF_ERROR(Split());
    for (size_t i = 1; i < symbols_.size(); ++i) {
      LAMINA_RETURN_IF_ERROR(Consider(static_cast<int>(i) - 1, static_cast<int>(i)));
    }
    while (!queue_.empty()) {
      const Pair pair = queue_.top();
      queue_.pop();
      LAMINA_RETURN_IF_ERROR(Merge(pair));
    }
    for (int i = symbols_.empty() ? -1 : 0; i >= 0; i = At(i).next) Emit(TextOf(At(i)), ids);
    return OkStatus();
  }

 private:
  Symbol& At(int i) { return symbols_[static_cast<size_t>(i)]; }
  std::string_view TextOf(const Symbol& symbol) const {
    return text_.substr(symbol.begin, symbol.length);
  }

  Status Split() {
    for (size_t at = 0; at < text_.size();) {
      Symbol symbol;
      symbol.begin = at;
      size_t looked = 0;
      symbol.frozen =
          encoder_.user_defined_.Match(text_.substr(at), &symbol.length, &looked) != nullptr;
      LAMINA_RETURN_IF_ERROR(watch_.Did(looked));
      if (!symbol.frozen) ClassifyUtf8(text_.substr(at), &symbol.length);
      at += symbol.length;
      symbol.prev = static_cast<int>(symbols_.size()) - 1;
      symbol.next = at < text_.size() ? static_cast<int>(symbols_.size()) + 1 : -1;
      symbols_.push_back(symbol);
    }
    return OkStatus();
  }

  Status Consider(int left, int right) {
    if (left < 0 || right < 0 || At(left).frozen || At(right).frozen) return OkStatus();
    const size_t length = At(left).length + At(right).length;
    if (length > encoder_.max_piece_bytes_) return OkStatus();
    LAMINA_RETURN_IF_ERROR(watch_.Did(kWorkPerLookUp + length / kHashedBytesPerWork));
    const std::string_view united = text_.substr(At(left).begin, length);
    const auto found = encoder_.mergeable_.find(united);
    if (found == encoder_.mergeable_.end()) return OkStatus();
    const SentencePieceModel::Piece& piece =
        encoder_.model_.pieces[static_cast<size_t>(found->second)];
    queue_.push({piece.score, left, right, length});
    if (piece.type == SentencePieceModel::Type::kUnused) splits_[united] = At(left).length;
    return OkStatus();
  }

  Status Merge(const Pair& pair) {
    Symbol& left = At(pair.left);
    Symbol& right = At(pair.right);
    if (left.length == 0 || right.length == 0 || left.length + right.length != pair.length)
      return OkStatus();
    left.length = pair.length;
    left.next = right.next;
    if (right.next >= 0) At(right.next).prev = pair.left;
    right.length = 0;
    LAMINA_RETURN_IF_ERROR(Consider(left.prev, pair.left));
    return Consider(pair.left, left.next);
  }

  // Unused pieces exist only on the way to longer ones: what is left of them is taken apart again.
  void Emit(std::string_view piece, std::vector<TokenId>& ids) {
    TokenId id = encoder_.Find(piece);
    const auto& pieces = encoder_.model_.pieces;
    if (id >= 0 && pieces[static_cast<size_t>(id)].type == SentencePieceModel::Type::kUnused) {
      if (const auto split = splits_.find(piece); split != splits_.end()) {
        Emit(piece.substr(0, split->second), ids);
        return Emit(piece.substr(split->second), ids);
      }
    }
    if (id < 0) id = encoder_.model_.unk_id;
    const bool unknown = pieces[static_cast<size_t>(id)].type == SentencePieceModel::Type::kUnknown;
    if (unknown && encoder_.model_.byte_fallback) {
      for (const char c : piece) ids.push_back(encoder_.model_.byte_ids[static_cast<uint8_t>(c)]);
    } else if (!unknown || !last_unknown_) {  // unknown characters in a row are one unknown token
      ids.push_back(id);
    }
    last_unknown_ = unknown;
  }

  const BpeEncoder& encoder_;
  std::string_view text_;
  TimeWatch watch_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Pair> queue_;
  std::unordered_map<std::string_view, size_t> splits_;  // unused pieces: length of their left part
  bool last_unknown_ = false;
};

BpeEncoder::BpeEncoder(const SentencePieceModel& model) : model_(model) {
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    using Type = SentencePieceModel::Type;
    const bool mergeable = piece.type == Type::kNormal || piece.type == Type::kUserDefined ||
                           piece.type == Type::kUnused;
    (mergeable ? mergeable_ : reserved_).emplace(piece.text, static_cast<TokenId>(id));
    if (mergeable) max_piece_bytes_ = std::max(max_piece_bytes_, piece.text.size());
    if (piece.type == Type::kUserDefined) user_defined_.Add({}, piece.text);
  }
}

TokenId BpeEncoder::Find(std::string_view piece) const {
  if (const auto found = reserved_.find(piece); found != reserved_.end()) return found->second;
  const auto found = mergeable_.find(piece);
  return found == mergeable_.end() ? -1 : found->second;
}

std::string BpeEncoder::Normalize(std::string_view text) const {
  const std::string_view space = model_.escape_whitespaces ? kSpaceMark : std::string_view(" ");
  const bool tidy = model_.remove_extra_whitespaces;
  if (tidy) text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  std::string normalized;
  if (text.empty()) return normalized;
  normalized.reserve(text.size() + text.size() / 2);
  if (model_.add_dummy_prefix) normalized += space;
  char previous = '\0';
  for (const char c : text) {
    if (c != ' ') {
      normalized += c;
    } else if (!tidy || previous != ' ') {
      normalized += space;
    }
    previous = c;
  }
  while (tidy && normalized.ends_with(space)) normalized.resize(normalized.size() - space.size());
  return normalized;
}

Status BpeEncoder::Encode(std::string_view text, const TimeBudget& budget,
                          std::vector<TokenId>& ids) const {
  const std::string normalized = Normalize(text);
  return Merger(*this, normalized, budget).Run(ids);
}

}  // namespace lamina
