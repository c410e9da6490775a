#include "text/sentencepiece_model.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "text/utf8.h"

namespace lamina {
namespace {

constexpr size_t kMaxPieceBytes = 1 << 10;        // pieces are trained with 16 characters at most
constexpr size_t kMaxUserDefinedBytes = 2 << 20;  // each becomes a node of a trie

constexpr uint64_t kBpe = 2;  // TrainerSpec.ModelType

// One field of a protobuf message. `bytes` for length-delimited ones, else `number` holds the bits.
struct Field {
  uint32_t number = 0;
  uint64_t value = 0;
  std::string_view bytes;
};

// Walks over a message's fields. Anything that is cut off or malformed ends the walk with
// `damaged`.
class FieldWalker {
 public:
  explicit FieldWalker(std::string_view message) : rest_(message) {}

  std::optional<Field> Next() {
    if (rest_.empty() || damaged_) return std::nullopt;
    const uint64_t tag = TakeVarint();
    Field field;
    field.number = static_cast<uint32_t>(tag >> 3);
    switch (tag & 7) {
      case 0: field.value = TakeVarint(); break;
      case 1: field.value = TakeFixed(8); break;
      case 2: field.bytes = Take(TakeVarint()); break;
      case 5: field.value = TakeFixed(4); break;
      default: damaged_ = true;
    }
    if (field.number == 0) damaged_ = true;
    return damaged_ ? std::nullopt : std::optional<Field>(field);
  }
  bool damaged() const { return damaged_; }

 private:
  std::string_view Take(uint64_t size) {
    if (size > rest_.size()) {
      damaged_ = true;
      size = 0;
    }
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  uint64_t TakeVarint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::string_view byte = Take(1);
      if (byte.empty()) return 0;
      value |= static_cast<uint64_t>(byte[0] & 0x7F) << shift;
      if ((byte[0] & 0x80) == 0) return value;
    }
    damaged_ = true;
    return 0;
  }
  uint64_t TakeFixed(size_t size) {
    uint64_t value = 0;  // little-endian, as this machine
    const std::string_view bytes = Take(size);
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }

  std::string_view rest_;
  bool damaged_ = false;
};

// Calls `on_field` for each field; false if the message is damaged.
template <typename OnField>
bool ForEachField(std::string_view message, OnField on_field) {
  FieldWalker walker(message);
  while (const auto field = walker.Next()) on_field(*field);
  return !walker.damaged();
}

struct Spec {
  uint64_t model_type = 1;  // the format's default: unigram
  bool whitespace_as_suffix = false;
  std::string normalizer;  // its name
  bool has_rules = false;  // precompiled normalisation
};

bool ParsePiece(std::string_view message, SentencePieceModel& model) {
  SentencePieceModel::Piece piece;
  const bool ok = ForEachField(message, [&](const Field& field) {
    if (field.number == 1) piece.text = std::string(field.bytes);
    if (field.number == 2) piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    if (field.number == 3 && field.value >= 1 && field.value <= 6)
      piece.type = static_cast<SentencePieceModel::Type>(field.value);
  });
  model.pieces.push_back(std::move(piece));
  return ok;
}

bool ParseTrainerSpec(std::string_view message, SentencePieceModel& model, Spec& spec) {
  return ForEachField(message, [&](const Field& field) {
    if (field.number == 3) spec.model_type = field.value;
    if (field.number == 24) spec.whitespace_as_suffix = field.value != 0;
    if (field.number == 35) model.byte_fallback = field.value != 0;
    if (field.number == 41) model.bos_id = static_cast<TokenId>(field.value);
    if (field.number == 42) model.eos_id = static_cast<TokenId>(field.value);
    if (field.number == 44) model.unk_surface = std::string(field.bytes);
  });
}

bool ParseNormalizerSpec(std::string_view message, SentencePieceModel& model, Spec& spec) {
  return ForEachField(message, [&](const Field& field) {
    if (field.number == 1) spec.normalizer = std::string(field.bytes);
    if (field.number == 2) spec.has_rules = !field.bytes.empty();
    if (field.number == 3) model.add_dummy_prefix = field.value != 0;
    if (field.number == 4) model.remove_extra_whitespaces = field.value != 0;
    if (field.number == 5) model.escape_whitespaces = field.value != 0;
  });
}

// "<0x0A>" -> 10; -1 for anything else.
int ByteOf(std::string_view text) {
  int value = -1;
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return -1;
  const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, value, 16);
  return error == std::errc() && end == text.data() + 5 ? value : -1;
}

Status CheckPieces(SentencePieceModel& model) {
  std::unordered_set<std::string_view> seen;
  bool has_unknown = false;
  size_t user_defined_bytes = 0;
  if (model.unk_surface.size() > kMaxPieceBytes)
    return InvalidArgument("the text for unknown tokens has more than " +
                           std::to_string(kMaxPieceBytes) + " bytes");
  model.byte_ids.assign(256, -1);
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    const std::string where = "piece " + std::to_string(id);
    if (piece.text.empty()) return InvalidArgument(where + " is empty");
    const std::string shown = Shortened(piece.text, 80);
    if (piece.text.size() > kMaxPieceBytes)
      return InvalidArgument(where + " '" + shown + "' has more than " +
                             std::to_string(kMaxPieceBytes) + " bytes");
    if (!seen.insert(piece.text).second)
      return InvalidArgument(where + " '" + shown + "' is there twice");
    if (piece.type == SentencePieceModel::Type::kUserDefined)
      user_defined_bytes += piece.text.size();
    if (user_defined_bytes > kMaxUserDefinedBytes)
      return InvalidArgument("the user-defined pieces have more than " +
                             std::to_string(kMaxUserDefinedBytes) + " bytes in all");
    if (piece.type == SentencePieceModel::Type::kUnknown) {
      model.unk_id = static_cast<TokenId>(id);
      has_unknown = true;
    }
    if (piece.type != SentencePieceModel::Type::kByte) continue;
    const int byte = ByteOf(piece.text);
    if (byte < 0) return InvalidArgument(where + " '" + shown + "' is no byte of the form <0x0A>");
    model.byte_ids[static_cast<size_t>(byte)] = static_cast<TokenId>(id);
  }
  if (!has_unknown) return InvalidArgument("there is no piece for unknown text");
  for (const TokenId id : model.byte_ids) {
    if (model.byte_fallback && id < 0)
      return InvalidArgument("byte fallback is on, but not all 256 byte pieces are there");
  }
  const TokenId size = static_cast<TokenId>(model.pieces.size());
  if (model.bos_id >= size || model.bos_id < 0) model.bos_id = -1;
  if (model.eos_id >= size || model.eos_id < 0) model.eos_id = -1;
  return OkStatus();
}

}  // namespace

Status SentencePieceModel::Check() { return CheckPieces(*this); }

Result<SentencePieceModel> SentencePieceModel::Parse(std::string_view bytes) {
  SentencePieceModel model;
  Spec spec;
  bool ok = true;
  ok &= ForEachField(bytes, [&](const Field& field) {
    if (field.number == 1) ok &= ParsePiece(field.bytes, model);
    if (field.number == 2) ok &= ParseTrainerSpec(field.bytes, model, spec);
    if (field.number == 3) ok &= ParseNormalizerSpec(field.bytes, model, spec);
  });
  if (!ok || model.pieces.empty())
    return InvalidArgument("not a SentencePiece model, or a damaged one");
  LAMINA_RETURN_IF_ERROR(CheckPieces(model));
  if (spec.model_type != kBpe)
    return Unimplemented("only SentencePiece models of type BPE are supported; this is type " +
                         std::to_string(spec.model_type) + " (1: unigram, 3: word, 4: char)");
  if (spec.has_rules)
    return Unimplemented("SentencePiece models with normalisation rules ('" +
                         Shortened(spec.normalizer, 80) + "') are not supported");
  if (spec.whitespace_as_suffix)
    return Unimplemented("SentencePiece models with spaces behind words are not supported");
  return model;
}

}  // namespace lamina
