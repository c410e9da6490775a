#include "text/sentencepiece_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/text_file.h"
#include "text/added_tokens.h"
#include "text/bpe_encoder.h"
#include "text/json_file.h"
#include "text/sentencepiece_model.h"
#include "text/utf8.h"

namespace lamina {
namespace {

enum class PieceKind { kText, kByte, kSpecial };

struct Piece {
  std::string text;  // kText: with spaces; kByte: the byte; kSpecial: as it is written
  PieceKind kind = PieceKind::kText;
  bool starts_with_space = false;
};

std::string WithSpaces(std::string_view piece) {
  std::string text;
  while (!piece.empty()) {
    if (piece.starts_with(kSpaceMark)) {
      text += ' ';
      piece.remove_prefix(kSpaceMark.size());
    } else {
      text += piece.front();
      piece.remove_prefix(1);
    }
  }
  return text;
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  Status Load(const std::string& dir);
  // `where` is how messages name `config`, the content of a tokenizer_config.json.
  Status Make(SentencePieceModel model, const nlohmann::json& config, const std::string& where);

  Result<std::vector<TokenId>> Encode(std::string_view text,
                                      bool add_special_tokens) const override;
  int64_t MinTokens(std::string_view text) const override;
  void Append(DecodeState& state, TokenId id, bool skip_special, std::string& text) const override;
  std::string TokenBytes(TokenId id) const override {
    return InVocabulary(id) ? pieces_[static_cast<size_t>(id)].text : "";
  }
  std::string IdToPiece(TokenId id) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(pieces_.size()); }
  std::optional<TokenId> bos() const override { return bos_; }
  std::optional<TokenId> eos() const override { return eos_; }

 private:
  bool InVocabulary(TokenId id) const {
    return id >= 0 && static_cast<size_t>(id) < pieces_.size();
  }
  void UseModel(SentencePieceModel model);
  void ReadPieces();
  Status ReadAddedTokens(const std::string& path);
  Status ReadDecoder(const nlohmann::json& config, const std::string& where);
  Status ReadConfig(const nlohmann::json& config);
  Status AddDecoder(const nlohmann::json& added);
  Status AddSpecial(const std::string& text, std::optional<TokenId> id);
  std::optional<TokenId> SpecialId(const nlohmann::json& config, const char* key,
                                   int fallback) const;
  Status EncodeSegment(std::string_view segment, bool after_special, const TimeBudget& budget,
                       std::vector<TokenId>& ids) const;

  SentencePieceModel model_;
  std::unique_ptr<BpeEncoder> encoder_;
  std::vector<Piece> pieces_;
  std::unordered_map<std::string, TokenId> specials_;
  AddedTokenFinder special_finder_;
  size_t special_bytes_ = 0;
  std::optional<TokenId> bos_, eos_;
  size_t max_token_bytes_ = 1;
  size_t unknown_prefix_ = 0;  // tokens of kUnknownText
  bool add_bos_ = true;
  bool add_eos_ = false;
  bool legacy_ = true;  // a space is put in front of text behind a special token as well
};

constexpr std::string_view kUnknownText = "<unk>";

// Ids may have gaps, but not so many that a small file needs much memory.
constexpr int64_t kMaxAddedId = 1 << 24;
int64_t MaxAddedId(size_t num_pieces) {
  return std::min(kMaxAddedId, static_cast<int64_t>(num_pieces) * 4 + (1 << 16));
}

Status SentencePieceTokenizer::Load(const std::string& dir) {
  const std::string path = dir + "/tokenizer.model";
  LAMINA_ASSIGN_OR_RETURN(const std::string bytes, ReadTextFile(path));
  auto model = SentencePieceModel::Parse(bytes);
  if (!model.ok()) return model.status().WithContext(path);
  UseModel(*std::move(model));
  nlohmann::json config = nlohmann::json::object();
  const std::string config_path = dir + "/tokenizer_config.json";
  if (auto file = ReadJsonFile(config_path); file.ok()) {
    config = *std::move(file);
  } else if (file.status().code() != StatusCode::kNotFound) {
    return file.status();
  }
  LAMINA_RETURN_IF_ERROR(ReadDecoder(config, config_path));
  LAMINA_RETURN_IF_ERROR(ReadAddedTokens(dir + "/added_tokens.json"));
  return ReadConfig(config);
}

Status SentencePieceTokenizer::Make(SentencePieceModel model, const nlohmann::json& config,
                                    const std::string& where) {
  UseModel(std::move(model));
  LAMINA_RETURN_IF_ERROR(ReadDecoder(config, where));
  return ReadConfig(config);
}

void SentencePieceTokenizer::UseModel(SentencePieceModel model) {
  model_ = std::move(model);
  encoder_ = std::make_unique<BpeEncoder>(model_);
  ReadPieces();
}

void SentencePieceTokenizer::ReadPieces() {
  using Type = SentencePieceModel::Type;
  pieces_.resize(model_.pieces.size());
  for (size_t id = 0; id < pieces_.size(); ++id) {
    const SentencePieceModel::Piece& source = model_.pieces[id];
    switch (source.type) {
      case Type::kControl: pieces_[id] = {source.text, PieceKind::kSpecial, false}; break;
      case Type::kUnknown: pieces_[id] = {model_.unk_surface, PieceKind::kText, false}; break;
      case Type::kByte: {
        const auto byte =
            std::find(model_.byte_ids.begin(), model_.byte_ids.end(), static_cast<TokenId>(id)) -
            model_.byte_ids.begin();
        pieces_[id] = {std::string(1, static_cast<char>(byte)), PieceKind::kByte, false};
        break;
      }
      default:
        pieces_[id] = {WithSpaces(source.text), PieceKind::kText,
                       source.text.starts_with(kSpaceMark)};
    }
    max_token_bytes_ = std::max(max_token_bytes_, pieces_[id].text.size());
  }
}

Status SentencePieceTokenizer::AddSpecial(const std::string& text, std::optional<TokenId> id) {
  if (text.empty()) return OkStatus();
  const int64_t max_id = MaxAddedId(model_.pieces.size());
  if (id && (*id < 0 || *id >= max_id)) {
    return InvalidArgument("the added token \"" + Shortened(text, 80) +
                           "\" has an id that is no integer from 0 to " +
                           std::to_string(max_id - 1));
  }
  if (!id) id = encoder_->Find(text);
  if (*id < 0) return OkStatus();
  special_bytes_ += text.size();
  if (text.size() > kMaxAddedTokenBytes || special_bytes_ > kMaxAddedTokensBytes ||
      specials_.size() >= kMaxAddedTokens) {
    return InvalidArgument(
        "the added token \"" + Shortened(text, 80) + "\" has " + std::to_string(text.size()) +
        " bytes, is number " + std::to_string(specials_.size() + 1) + " or makes " +
        std::to_string(special_bytes_) + " bytes in all; expected at most " +
        std::to_string(kMaxAddedTokenBytes) + " bytes, " + std::to_string(kMaxAddedTokens) +
        " added tokens and " + std::to_string(kMaxAddedTokensBytes) + " bytes in all");
  }
  if (static_cast<size_t>(*id) >= pieces_.size()) {
    pieces_.resize(static_cast<size_t>(*id) + 1);
    pieces_[static_cast<size_t>(*id)] = {text, PieceKind::kSpecial, false};
  }
  max_token_bytes_ = std::max(max_token_bytes_, text.size());
  AddedToken token;
  token.id = *id;
  if (specials_.try_emplace(text, *id).second) special_finder_.Add(token, text);
  return OkStatus();
}

// {"1024": {"content": "<|end|>"}, ...}
Status SentencePieceTokenizer::AddDecoder(const nlohmann::json& added) {
  if (!added.is_object()) return InvalidArgument("expected an object from id to token");
  for (const auto& [key, token] : added.items()) {
    TokenId id = -1;
    const char* const end = key.data() + key.size();
    if (std::from_chars(key.data(), end, id).ptr != end) id = -1;
    const auto content = token.is_object() ? token.find("content") : token.end();
    if (!token.is_string() && (content == token.end() || !content->is_string()))
      return InvalidArgument("\"" + Shortened(key, 80) + "\" has no content that is text");
    LAMINA_RETURN_IF_ERROR(AddSpecial(SpecialTokenText(token), id));
  }
  return OkStatus();
}

std::optional<TokenId> SentencePieceTokenizer::SpecialId(const nlohmann::json& config,
                                                         const char* key, int fallback) const {
  if (const auto value = config.find(key); value != config.end()) {
    const std::string text = SpecialTokenText(*value);
    if (const auto found = specials_.find(text); found != specials_.end()) return found->second;
  }
  if (fallback < 0) return std::nullopt;
  return fallback;
}

Status SentencePieceTokenizer::ReadDecoder(const nlohmann::json& config, const std::string& where) {
  const auto added = config.find("added_tokens_decoder");
  if (added == config.end() || added->is_null()) return OkStatus();
  return AddDecoder(*added).WithContext(where + ": added_tokens_decoder");
}

Status SentencePieceTokenizer::ReadAddedTokens(const std::string& path) {
  const auto added = ReadJsonFile(path);
  if (added.status().code() == StatusCode::kNotFound) return OkStatus();
  LAMINA_RETURN_IF_ERROR(added.status());
  for (const auto& [text, id] : added->items()) {
    const int64_t number = id.is_number_integer() ? id.get<int64_t>() : -1;
    const int64_t clamped = std::clamp<int64_t>(number, -1, kMaxAddedId);
    if (const Status status = AddSpecial(text, static_cast<TokenId>(clamped)); !status.ok())
      return status.WithContext(path);
  }
  return OkStatus();
}

Status SentencePieceTokenizer::ReadConfig(const nlohmann::json& config) {
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    if (const auto value = config.find(key); value != config.end())
      LAMINA_RETURN_IF_ERROR(AddSpecial(SpecialTokenText(*value), std::nullopt));
  }
  bos_ = SpecialId(config, "bos_token", model_.bos_id);
  eos_ = SpecialId(config, "eos_token", model_.eos_id);
  const auto flag = [&](const char* key, bool fallback) {
    const auto value = config.find(key);
    return value != config.end() && value->is_boolean() ? value->get<bool>() : fallback;
  };
  add_bos_ = flag("add_bos_token", true);
  add_eos_ = flag("add_eos_token", false);
  legacy_ = flag("legacy", true);
  std::vector<TokenId> unknown;
  LAMINA_RETURN_IF_ERROR(
      encoder_->Encode(kUnknownText, TokenizerTime(kUnknownText.size()), unknown));
  unknown_prefix_ = unknown.size();
  return OkStatus();
}

Status SentencePieceTokenizer::EncodeSegment(std::string_view segment, bool after_special,
                                             const TimeBudget& budget,
                                             std::vector<TokenId>& ids) const {
  if (!after_special || legacy_) return encoder_->Encode(segment, budget, ids);
  // No space in front: encoded behind a fixed text, whose tokens are dropped again.
  std::vector<TokenId> with_prefix;
  LAMINA_RETURN_IF_ERROR(
      encoder_->Encode(std::string(kUnknownText).append(segment), budget, with_prefix));
  ids.insert(ids.end(),
             with_prefix.begin() +
                 static_cast<std::ptrdiff_t>(std::min(unknown_prefix_, with_prefix.size())),
             with_prefix.end());
  return OkStatus();
}

Result<std::vector<TokenId>> SentencePieceTokenizer::Encode(std::string_view text,
                                                            bool add_special_tokens) const {
  std::vector<TokenId> ids;
  if (add_special_tokens && add_bos_ && bos_) ids.push_back(*bos_);
  const TimeBudget budget = TokenizerTime(text.size());
  bool after_special = false;
  LAMINA_RETURN_IF_ERROR(special_finder_.Divide(
      text, budget, [&](std::string_view piece, std::optional<TokenId> id) -> Status {
        if (!id) return EncodeSegment(piece, after_special, budget, ids);
        ids.push_back(*id);
        after_special = true;
        return OkStatus();
      }));
  if (add_special_tokens && add_eos_ && eos_) ids.push_back(*eos_);
  return ids;
}

int64_t SentencePieceTokenizer::MinTokens(std::string_view text) const {
  if (!model_.byte_fallback) return 0;  // any number of unknown characters can become one token
  const auto counts = [this](char c) { return c != ' ' || !model_.remove_extra_whitespaces; };
  return std::count_if(text.begin(), text.end(), counts) / static_cast<int64_t>(max_token_bytes_);
}

void SentencePieceTokenizer::Append(DecodeState& state, TokenId id, bool skip_special,
                                    std::string& text) const {
  if (!InVocabulary(id)) return;
  const Piece& piece = pieces_[static_cast<size_t>(id)];
  const size_t size_before = text.size();
  if (piece.kind == PieceKind::kByte) {
    state.incomplete += piece.text;
    TakeCompleteUtf8(state.incomplete, text);
  } else {
    // A character does not go on behind a piece of another kind.
    TakeAllUtf8(state.incomplete, text);
    if (text.size() > size_before) state.at_start = false;
    std::string_view added = piece.text;
    if (piece.kind == PieceKind::kSpecial && skip_special) added = {};
    if (state.at_start && piece.starts_with_space &&
        (model_.add_dummy_prefix || model_.remove_extra_whitespaces)) {
      added.remove_prefix(1);
      // Only one space was added; otherwise no text begins with any.
      if (!model_.remove_extra_whitespaces) state.at_start = false;
    }
    text += added;
  }
  if (text.size() > size_before) state.at_start = false;
}

std::string SentencePieceTokenizer::IdToPiece(TokenId id) const {
  if (!InVocabulary(id)) return "";
  const size_t index = static_cast<size_t>(id);
  return index < model_.pieces.size() ? model_.pieces[index].text : pieces_[index].text;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> LoadSentencePieceTokenizer(const std::string& dir) {
  auto tokenizer = std::make_unique<SentencePieceTokenizer>();
  LAMINA_RETURN_IF_ERROR(tokenizer->Load(dir));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

Result<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(SentencePieceModel model,
                                                              const nlohmann::json& config,
                                                              const std::string& where) {
  auto tokenizer = std::make_unique<SentencePieceTokenizer>();
  LAMINA_RETURN_IF_ERROR(tokenizer->Make(std::move(model), config, where));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace lamina
