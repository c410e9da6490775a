#include "text/json_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <unordered_map>
#include <utility>

#include "text/added_tokens.h"
#include "text/json_file.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/ranked_bpe.h"
#include "text/template_processor.h"
#include "text/token_decoder.h"
#include "text/utf8.h"

namespace lamina {
namespace {

// How many bytes a text may have after normalization. Unicode's normal forms make at most eleven
// bytes of one, but long texts never grow so much: their usual growth is a space that becomes
// U+2581, which has three bytes.
size_t MaxNormalizedBytes(size_t text_bytes) {
  constexpr size_t kMaxGrowth = 16, kLongMaxGrowth = 3, kLong = 8 << 20, kSlack = 64 << 10;
  return std::min(text_bytes * kMaxGrowth, std::max(kLong, text_bytes * kLongMaxGrowth)) + kSlack;
}

// A token of the vocabulary, as decoding needs it.
struct Entry {
  TokenDecoder::Token decoded;
  bool in_use = false;
  bool special = false;
};

class JsonTokenizer final : public Tokenizer {
 public:
  Status Read(const JsonNode& file, const JsonNode& config);

  Result<std::vector<TokenId>> Encode(std::string_view text,
                                      bool add_special_tokens) const override;
  int64_t MinTokens(std::string_view text) const override;
  void Append(DecodeState& state, TokenId id, bool skip_special, std::string& text) const override;
  void Finish(DecodeState& state, std::string& text) const override {
    decoder_.Finish(state, text);
  }
  std::string TokenBytes(TokenId id) const override {
    return InVocabulary(id) ? entries_[static_cast<size_t>(id)].decoded.text : "";
  }
  std::string IdToPiece(TokenId id) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(entries_.size()); }
  std::optional<TokenId> bos() const override { return bos_; }
  std::optional<TokenId> eos() const override { return eos_; }

 private:
  class WordCache;

  bool InVocabulary(TokenId id) const {
    return id >= 0 && static_cast<size_t>(id) < entries_.size() &&
           entries_[static_cast<size_t>(id)].in_use;
  }
  Status ReadAddedTokens(const JsonNode& file);
  Status ReadConfigTokens(const JsonNode& config);
  Status ReadSpecialNames(const JsonNode& config);
  Status ReadConfig(const JsonNode& config);
  Status AddToken(const JsonNode& node, int64_t id, bool normalized_by_default);
  std::optional<TokenId> IdOf(const std::string& text) const;
  Status PrepareFinders();
  Status PrepareEntries();
  struct Encoding;
  Status EncodeText(std::string_view text, bool is_start, Encoding& encoding) const;
  Status EncodeWords(std::string_view text, bool is_start, Encoding& encoding) const;

  std::optional<Normalizer> normalizer_;
  std::optional<PreTokenizer> pre_tokenizer_;
  std::optional<RankedBpe> bpe_;
  TokenDecoder decoder_;
  TemplateProcessor processor_;
  std::unordered_map<std::string, AddedToken> added_;  // by text
  AddedTokenFinder in_raw_text_, in_normalized_text_;
  std::vector<Entry> entries_;                             // by id
  std::unordered_map<TokenId, std::string> added_pieces_;  // spelling by id
  size_t added_bytes_ = 0;                                 // of the added tokens read so far
  size_t max_token_bytes_ = 1;
  bool added_tokens_take_spaces_ = false;
  std::optional<TokenId> bos_, eos_;
};

// Remembers how the words of one text were encoded, since most words of a text come again. A cache
// lives as long as one call of Encode, so threads share nothing.
class JsonTokenizer::WordCache {
 public:
  explicit WordCache(const RankedBpe& bpe) : bpe_(bpe) {}

  Status Encode(std::string_view word, TimeWatch& watch, std::vector<TokenId>& ids) {
    while (!word.empty()) {
      const size_t bytes = bpe_.FirstPart(word);
      LAMINA_RETURN_IF_ERROR(EncodePart(word.substr(0, bytes), watch, ids));
      word.remove_prefix(bytes);
    }
    return OkStatus();
  }

 private:
  static constexpr size_t kMaxPartBytes = 32;   // longer ones seldom come twice
  static constexpr size_t kWorkPerLookUp = 16;  // in units of TimeWatch::Did

  Status EncodePart(std::string_view part, TimeWatch& watch, std::vector<TokenId>& ids) {
    if (part.size() > kMaxPartBytes) return bpe_.Encode(part, watch, ids);
    LAMINA_RETURN_IF_ERROR(watch.Did(kWorkPerLookUp));
    const auto [found, is_new] = parts_.try_emplace(std::string(part));
    if (is_new) LAMINA_RETURN_IF_ERROR(bpe_.Encode(part, watch, found->second));
    ids.insert(ids.end(), found->second.begin(), found->second.end());
    return OkStatus();
  }

  const RankedBpe& bpe_;
  std::unordered_map<std::string, std::vector<TokenId>> parts_;
};

// The state of one call of Encode.
struct JsonTokenizer::Encoding {
  Encoding(const RankedBpe& bpe, size_t text_bytes)
      : cache(bpe),
        budget(TokenizerTime(text_bytes)),
        watch(budget),
        normalized_bytes_left(MaxNormalizedBytes(text_bytes)) {}

  WordCache cache;
  const TimeBudget budget;
  TimeWatch watch;
  size_t normalized_bytes_left;  // that the normalizer may still make of this text
  std::vector<TokenId> ids;
};

Status JsonTokenizer::Read(const JsonNode& file, const JsonNode& config) {
  if (file.Has("normalizer")) {
    LAMINA_ASSIGN_OR_RETURN(const JsonNode node, file.Get("normalizer"));
    LAMINA_ASSIGN_OR_RETURN(normalizer_, Normalizer::Read(node));
  }
  if (file.Has("pre_tokenizer")) {
    LAMINA_ASSIGN_OR_RETURN(const JsonNode node, file.Get("pre_tokenizer"));
    LAMINA_ASSIGN_OR_RETURN(pre_tokenizer_, PreTokenizer::Read(node));
  }
  if (file.Has("decoder")) {
    LAMINA_ASSIGN_OR_RETURN(const JsonNode node, file.Get("decoder"));
    LAMINA_ASSIGN_OR_RETURN(decoder_, TokenDecoder::Read(node));
  }
  LAMINA_ASSIGN_OR_RETURN(const JsonNode model, file.Get("model"));
  LAMINA_ASSIGN_OR_RETURN(
      bpe_, RankedBpe::Read(model, pre_tokenizer_ && pre_tokenizer_->is_byte_level()));
  if (file.Has("post_processor")) {
    LAMINA_ASSIGN_OR_RETURN(const JsonNode node, file.Get("post_processor"));
    LAMINA_ASSIGN_OR_RETURN(processor_, TemplateProcessor::Read(node));
  }
  // In this order: what tokenizer_config.json says about a token replaces what tokenizer.json says,
  // and ReadConfig may replace the post-processor.
  LAMINA_RETURN_IF_ERROR(ReadAddedTokens(file));
  LAMINA_RETURN_IF_ERROR(ReadConfigTokens(config));
  LAMINA_RETURN_IF_ERROR(ReadSpecialNames(config));
  LAMINA_RETURN_IF_ERROR(ReadConfig(config));
  Status status = PrepareFinders();
  if (status.ok()) status = PrepareEntries();
  return status.WithContext(file.path() + "added_tokens or model.vocab");
}

Status JsonTokenizer::ReadAddedTokens(const JsonNode& file) {
  return file.ForEach("added_tokens", [&](const JsonNode& node) -> Status {
    LAMINA_ASSIGN_OR_RETURN(const JsonNode id_node, node.Get("id"));
    LAMINA_ASSIGN_OR_RETURN(const int64_t id, id_node.Int(0, INT32_MAX));
    return AddToken(node, id, true);
  });
}

// tokenizer_config.json repeats the added tokens. What it says about a token replaces what
// tokenizer.json says.
Status JsonTokenizer::ReadConfigTokens(const JsonNode& config) {
  if (!config.Has("added_tokens_decoder")) return OkStatus();
  LAMINA_ASSIGN_OR_RETURN(const JsonNode tokens, config.Get("added_tokens_decoder"));
  if (!tokens.value().is_object()) return tokens.Invalid("an object from id to token");
  for (const auto& [key, value] : tokens.value().items()) {
    int64_t id = -1;
    const auto read = std::from_chars(key.data(), key.data() + key.size(), id);
    const JsonNode node(value, tokens.path() + "[\"" + key.substr(0, 80) + "\"]");
    if (read.ec != std::errc() || read.ptr != key.data() + key.size())
      return node.Invalid("an id as its key");
    LAMINA_RETURN_IF_ERROR(AddToken(node, id, true));
  }
  return OkStatus();
}

// A token that is in the vocabulary already keeps its id there, whatever `id` the file gives it.
Status JsonTokenizer::AddToken(const JsonNode& node, int64_t id, bool normalized_by_default) {
  AddedToken token;
  LAMINA_ASSIGN_OR_RETURN(const JsonNode content, node.Get("content"));
  LAMINA_ASSIGN_OR_RETURN(token.text, content.Text());
  LAMINA_ASSIGN_OR_RETURN(token.special, node.Flag("special", false));
  LAMINA_ASSIGN_OR_RETURN(token.normalized,
                          node.Flag("normalized", normalized_by_default && !token.special));
  LAMINA_ASSIGN_OR_RETURN(token.single_word, node.Flag("single_word", false));
  LAMINA_ASSIGN_OR_RETURN(token.lstrip, node.Flag("lstrip", false));
  LAMINA_ASSIGN_OR_RETURN(token.rstrip, node.Flag("rstrip", false));
  if (token.text.empty()) return OkStatus();
  // entries_ has a place for every id up to the largest, so a small file with one huge id could
  // fill the memory.
  const int64_t max_id =
      static_cast<int64_t>(bpe_->pieces().size() + added_.size()) * 4 + (1 << 16);
  if (id < 0 || id > max_id) {
    return InvalidArgument(node.path() + ": the id " + std::to_string(id) +
                           " is far beyond the vocabulary of " +
                           std::to_string(bpe_->pieces().size()) + " tokens");
  }
  if (token.text.size() > kMaxAddedTokenBytes) {
    return InvalidArgument(node.path() + ": the added token \"" + Shortened(token.text, 80) +
                           "\" has " + std::to_string(token.text.size()) +
                           " bytes, expected at most " + std::to_string(kMaxAddedTokenBytes));
  }
  added_bytes_ += token.text.size();
  // Twice the limit, because tokenizer_config.json repeats the tokens of tokenizer.json.
  if (added_bytes_ > 2 * kMaxAddedTokensBytes || added_.size() >= kMaxAddedTokens) {
    return InvalidArgument(node.path() + ": expected at most " + std::to_string(kMaxAddedTokens) +
                           " added tokens of " + std::to_string(kMaxAddedTokensBytes) +
                           " bytes in all");
  }
  token.id = IdOf(token.text).value_or(static_cast<TokenId>(id));
  added_[token.text] = std::move(token);
  return OkStatus();
}

// The tokens that tokenizer_config.json names as "bos_token" and so on are special even if they are
// in no list of added tokens.
Status JsonTokenizer::ReadSpecialNames(const JsonNode& config) {
  const auto add = [&](const nlohmann::json& value) {
    const std::string text = SpecialTokenText(value);
    const std::optional<TokenId> id = IdOf(text);
    if (id && !added_.contains(text)) added_[text] = {text, *id, /*special=*/true};
  };
  for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                          "cls_token", "mask_token"}) {
    if (config.Has(key)) add(config.value()[key]);
  }
  return config.ForEach("additional_special_tokens", [&](const JsonNode& node) {
    add(node.value());
    return OkStatus();
  });
}

std::optional<TokenId> JsonTokenizer::IdOf(const std::string& text) const {
  if (const auto found = added_.find(text); found != added_.end()) return found->second.id;
  return bpe_->Find(text);
}

// For Llama and Gemma tokenizers "add_bos_token" and "add_eos_token" decide which tokens are put
// around a text, and replace tokenizer.json's post-processor, as in the transformers library.
Status JsonTokenizer::ReadConfig(const JsonNode& config) {
  const auto id_of = [&](const char* key) {
    return config.Has(key) ? IdOf(SpecialTokenText(config.value()[key])) : std::nullopt;
  };
  bos_ = id_of("bos_token");
  eos_ = id_of("eos_token");
  LAMINA_ASSIGN_OR_RETURN(const std::string tokenizer_class, config.Text("tokenizer_class", ""));
  LAMINA_ASSIGN_OR_RETURN(const bool add_bos, config.Flag("add_bos_token", true));
  LAMINA_ASSIGN_OR_RETURN(const bool add_eos, config.Flag("add_eos_token", false));
  const bool decides = tokenizer_class.starts_with("LlamaTokenizer") ||
                       tokenizer_class.starts_with("CodeLlamaTokenizer") ||
                       tokenizer_class.starts_with("GemmaTokenizer");
  if (decides)
    processor_ = TemplateProcessor(add_bos ? bos_ : std::nullopt, add_eos ? eos_ : std::nullopt);
  // A file may name no "bos_token" and still put one in front of every text.
  if (!bos_ && !processor_.before().empty()) bos_ = processor_.before().front();
  return OkStatus();
}

Status JsonTokenizer::PrepareFinders() {
  size_t text_bytes = 0;
  for (const auto& [text, token] : added_) text_bytes += text.size();
  const TimeBudget budget = TokenizerTime(text_bytes);
  size_t normalized_bytes = 0;
  for (const auto& [text, token] : added_) {
    // A token with "normalized" is looked for in normalized text, so its own text is normalized
    // too.
    if (token.normalized && normalizer_) {
      LAMINA_ASSIGN_OR_RETURN(const std::string normalized,
                              normalizer_->Apply(text, 4 * kMaxAddedTokenBytes, budget));
      normalized_bytes += normalized.size();
      if (normalized_bytes > 2 * kMaxAddedTokensBytes)
        return OutOfSpace("the added tokens are normalized to more than " +
                          std::to_string(2 * kMaxAddedTokensBytes) + " bytes");
      in_normalized_text_.Add(token, normalized);
    } else {
      (token.normalized ? in_normalized_text_ : in_raw_text_).Add(token, text);
    }
    added_tokens_take_spaces_ |= token.lstrip || token.rstrip;
    max_token_bytes_ = std::max(max_token_bytes_, text.size());
  }
  return OkStatus();
}

Status JsonTokenizer::PrepareEntries() {
  const std::vector<std::string>& pieces = bpe_->pieces();
  entries_.resize(pieces.size());
  size_t text_bytes = 0;
  for (const std::string& piece : pieces) text_bytes += piece.size();
  for (const auto& [text, token] : added_) text_bytes += text.size();
  const TimeBudget budget = TokenizerTime(text_bytes);
  size_t decoded_bytes = 0;
  const auto set = [&](TokenId id, const std::string& piece, bool special) -> Status {
    if (entries_.size() <= static_cast<size_t>(id)) entries_.resize(static_cast<size_t>(id) + 1);
    LAMINA_ASSIGN_OR_RETURN(TokenDecoder::Token decoded, decoder_.Prepare(piece, budget));
    decoded_bytes += decoded.text.size();
    if (decoded_bytes > MaxNormalizedBytes(text_bytes))
      return OutOfSpace("the decoder makes more than " +
                        std::to_string(MaxNormalizedBytes(text_bytes)) +
                        " bytes of the vocabulary");
    entries_[static_cast<size_t>(id)] = {std::move(decoded), true, special};
    return OkStatus();
  };
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (!pieces[id].empty())
      LAMINA_RETURN_IF_ERROR(set(static_cast<TokenId>(id), pieces[id], false));
    max_token_bytes_ = std::max(max_token_bytes_, pieces[id].size());
  }
  // After the vocabulary: an added token that shares an id with a piece replaces it.
  for (const auto& [text, token] : added_) {
    added_pieces_[token.id] = text;
    LAMINA_RETURN_IF_ERROR(set(token.id, text, token.special));
  }
  return OkStatus();
}

Result<std::vector<TokenId>> JsonTokenizer::Encode(std::string_view text,
                                                   bool add_special_tokens) const {
  Encoding encoding(*bpe_, text.size());
  if (add_special_tokens) encoding.ids = processor_.before();
  LAMINA_RETURN_IF_ERROR(in_raw_text_.Divide(
      text, encoding.budget, [&](std::string_view piece, std::optional<TokenId> id) -> Status {
        if (!id) return EncodeText(piece, piece.data() == text.data(), encoding);
        encoding.ids.push_back(*id);
        return OkStatus();
      }));
  if (add_special_tokens)
    encoding.ids.insert(encoding.ids.end(), processor_.after().begin(), processor_.after().end());
  return std::move(encoding.ids);
}

Status JsonTokenizer::EncodeText(std::string_view text, bool is_start, Encoding& encoding) const {
  std::string normalized;
  if (normalizer_) {
    LAMINA_ASSIGN_OR_RETURN(
        normalized,
        normalizer_->Apply(std::string(text), encoding.normalized_bytes_left, encoding.budget));
    encoding.normalized_bytes_left -= normalized.size();
  }
  const std::string_view searched = normalizer_ ? std::string_view(normalized) : text;
  return in_normalized_text_.Divide(
      searched, encoding.budget, [&](std::string_view piece, std::optional<TokenId> id) -> Status {
        if (!id) return EncodeWords(piece, is_start && piece.data() == searched.data(), encoding);
        encoding.ids.push_back(*id);
        return OkStatus();
      });
}

Status JsonTokenizer::EncodeWords(std::string_view text, bool is_start, Encoding& encoding) const {
  if (!pre_tokenizer_) return encoding.cache.Encode(text, encoding.watch, encoding.ids);
  LAMINA_ASSIGN_OR_RETURN(const PreTokenizer::Words words,
                          pre_tokenizer_->Divide(text, is_start, encoding.budget));
  for (const std::string_view word : words.words)
    LAMINA_RETURN_IF_ERROR(encoding.cache.Encode(word, encoding.watch, encoding.ids));
  return OkStatus();
}

// No token stands for more bytes than the longest one. That bounds the number of tokens from below,
// unless text can vanish on the way: in the model (unknown characters without byte fallback), in an
// added token that swallows spaces around it, in a Removed split or in the normalizer.
int64_t JsonTokenizer::MinTokens(std::string_view text) const {
  const std::optional<size_t> shrink = normalizer_ ? normalizer_->max_shrink() : 1;
  const bool loses_text = !bpe_->loses_nothing() || added_tokens_take_spaces_ ||
                          (pre_tokenizer_ && pre_tokenizer_->drops_text()) || !shrink;
  return loses_text ? 0 : static_cast<int64_t>(text.size() / max_token_bytes_ / *shrink);
}

void JsonTokenizer::Append(DecodeState& state, TokenId id, bool skip_special,
                           std::string& text) const {
  if (!InVocabulary(id)) return;
  const Entry& entry = entries_[static_cast<size_t>(id)];
  if (!entry.special || !skip_special) decoder_.Append(state, entry.decoded, text);
}

std::string JsonTokenizer::IdToPiece(TokenId id) const {
  if (!InVocabulary(id)) return "";
  if (const auto added = added_pieces_.find(id); added != added_pieces_.end()) return added->second;
  return bpe_->pieces()[static_cast<size_t>(id)];
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> LoadJsonTokenizer(const std::string& dir) {
  const std::string path = dir + "/tokenizer.json";
  LAMINA_ASSIGN_OR_RETURN(const nlohmann::json file, ReadJsonFile(path));
  nlohmann::json config = nlohmann::json::object();
  if (auto read = ReadJsonFile(dir + "/tokenizer_config.json"); read.ok()) {
    config = *std::move(read);
  } else if (read.status().code() != StatusCode::kNotFound) {
    return read.status();
  }
  return ParseJsonTokenizer(file, config, path);
}

Result<std::unique_ptr<Tokenizer>> ParseJsonTokenizer(const nlohmann::json& tokenizer,
                                                      const nlohmann::json& config,
                                                      const std::string& path) {
  const size_t folder_end = path.rfind('/') + 1;  // 0 if there is none
  auto read = std::make_unique<JsonTokenizer>();
  LAMINA_RETURN_IF_ERROR(
      read->Read(JsonNode(tokenizer, path + ": "),
                 JsonNode(config, path.substr(0, folder_end) + "tokenizer_config.json: ")));
  return std::unique_ptr<Tokenizer>(std::move(read));
}

}  // namespace lamina
