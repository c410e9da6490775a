#include "text/token_decoder.h"

#include <charconv>

#include "text/byte_alphabet.h"
#include "text/normalizer.h"
#include "text/sentencepiece_model.h"
#include "text/utf8.h"

namespace lamina {
namespace {

constexpr size_t kMaxDecodedBytes = 4 * kMaxPieceBytes;  // of one token

constexpr std::string_view kUnderstoodDecoders =
    "understood are ByteLevel, Metaspace and a Sequence of Replace, ByteFallback, Fuse and Strip, "
    "in this order";

// "<0x0A>" is a byte.
bool ReadByteToken(std::string_view piece, std::string& byte) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return false;
  unsigned char value = 0;
  const char* end = piece.data() + 5;
  if (const auto read = std::from_chars(piece.data() + 3, end, value, 16);
      read.ec != std::errc() || read.ptr != end)
    return false;
  byte = static_cast<char>(value);
  return true;
}

bool IsWellFormed(std::string_view bytes) {
  while (!bytes.empty()) {
    size_t length = 0;
    if (ClassifyUtf8(bytes, &length) != Utf8Prefix::kComplete) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

}  // namespace

Result<TokenDecoder> TokenDecoder::Read(const JsonNode& node) {
  TokenDecoder decoder;
  LAMINA_ASSIGN_OR_RETURN(const JsonNode type_node, node.Get("type"));
  LAMINA_ASSIGN_OR_RETURN(const std::string type, type_node.Text());
  if (type == "ByteLevel") {
    decoder.kind_ = Kind::kByteLevel;
  } else if (type == "Metaspace") {
    decoder.kind_ = Kind::kMetaspace;
    LAMINA_ASSIGN_OR_RETURN(decoder.mark_, node.Text("replacement", kSpaceMark));
    LAMINA_ASSIGN_OR_RETURN(const bool add_prefix_space, node.Flag("add_prefix_space", true));
    LAMINA_ASSIGN_OR_RETURN(const std::string scheme,
                            node.Text("prepend_scheme", add_prefix_space ? "always" : "never"));
    if (decoder.mark_.empty()) return InvalidArgument(node.path() + ".replacement is empty");
    decoder.drop_mark_ = scheme != "never";
  } else if (type == "Sequence") {
    decoder.kind_ = Kind::kSequence;
    LAMINA_RETURN_IF_ERROR(decoder.ReadSequence(node));
  } else if (type == "Replace" || type == "ByteFallback" || type == "Fuse") {
    decoder.kind_ = Kind::kSequence;
    LAMINA_RETURN_IF_ERROR(decoder.ReadStep(node, type));
  } else {
    return type_node.Unsupported(kUnderstoodDecoders);
  }
  return decoder;
}

Status TokenDecoder::ReadSequence(const JsonNode& node) {
  if (node.value().contains("decoders") && node.value()["decoders"].is_array() &&
      node.value()["decoders"].size() == 1) {
    LAMINA_ASSIGN_OR_RETURN(const std::vector<JsonNode> only, node.Get("decoders")->Entries());
    if (only[0].value().is_object() &&
        only[0].value().value("type", nlohmann::json()) != "Sequence") {
      LAMINA_ASSIGN_OR_RETURN(*this, Read(only[0]));
      return OkStatus();
    }
  }
  return node.ForEach("decoders", [&](const JsonNode& step) -> Status {
    LAMINA_ASSIGN_OR_RETURN(const JsonNode type_node, step.Get("type"));
    LAMINA_ASSIGN_OR_RETURN(const std::string type, type_node.Text());
    return ReadStep(step, type);
  });
}

Status TokenDecoder::ReadStep(const JsonNode& step, const std::string& type) {
  if (!strip_.empty()) return step.Unsupported(kUnderstoodDecoders);
  if (type == "Replace" && !byte_fallback_ && !fuse_) {
    if (replacements_.size() == kMaxSequenceSteps)
      return InvalidArgument(step.path() + " is one Replace of more than " +
                             std::to_string(kMaxSequenceSteps));
    LAMINA_ASSIGN_OR_RETURN(auto pattern, ReadPattern(step));
    LAMINA_ASSIGN_OR_RETURN(std::string content, step.Text("content", ""));
    replacements_.emplace_back(std::move(pattern), std::move(content));
    return OkStatus();
  }
  if (type == "Strip" && fuse_) return ReadStrip(step);
  if (type == "Fuse") {
    fuse_ = true;
  } else if (type == "ByteFallback" && !byte_fallback_ && !fuse_) {
    byte_fallback_ = true;
  } else {
    return step.Get("type")->Unsupported(kUnderstoodDecoders);
  }
  return OkStatus();
}

Status TokenDecoder::ReadStrip(const JsonNode& step) {
  LAMINA_ASSIGN_OR_RETURN(const JsonNode content, step.Get("content"));
  LAMINA_ASSIGN_OR_RETURN(const std::string text, content.Text());
  if (CountCodePoints(text) != 1) return content.Invalid("one character");
  constexpr int64_t kMany = int64_t{1} << 32;
  LAMINA_ASSIGN_OR_RETURN(const int64_t start, step.Int("start", 0, 0, kMany));
  LAMINA_ASSIGN_OR_RETURN(const int64_t stop, step.Int("stop", 0, 0, kMany));
  if (start > 1) return step.Get("start")->Unsupported("understood are 0 and 1");
  if (stop > 0)
    return step.Get("stop")->Unsupported("understood is 0: text is sent before its end is known");
  if (start == 1) strip_ = text;
  return OkStatus();
}

Result<TokenDecoder::Token> TokenDecoder::Prepare(std::string_view piece,
                                                  const TimeBudget& budget) const {
  Token token;
  switch (kind_) {
    case Kind::kWords:
      token.text = " " + std::string(piece);
      token.first_text = piece;
      token.has_first_text = true;
      break;
    case Kind::kByteLevel:
      if (!ReadSpelledBytes(piece, token.text)) token.text = piece;
      break;
    case Kind::kMetaspace:
      for (size_t at = 0; at < piece.size();) {
        const bool is_mark = piece.substr(at).starts_with(mark_);
        const std::string_view part = is_mark ? std::string_view(" ") : piece.substr(at, 1);
        token.text += part;
        if (!is_mark) token.first_text += part;
        at += is_mark ? mark_.size() : 1;
      }
      token.has_first_text = drop_mark_;
      break;
    case Kind::kSequence:
      token.text = piece;
      for (const auto& [pattern, with] : replacements_) {
        LAMINA_ASSIGN_OR_RETURN(token.text,
                                pattern->ReplaceAll(token.text, with, kMaxDecodedBytes, budget));
      }
      token.is_byte = byte_fallback_ && ReadByteToken(std::string(token.text), token.text);
      break;
  }
  return token;
}

void TokenDecoder::Append(DecodeState& state, const Token& token, std::string& text) const {
  if (kind_ == Kind::kByteLevel) {
    state.incomplete += token.text;
    return TakeCompleteUtf8(state.incomplete, text, Repair::kEachSubpart);
  }
  if (token.is_byte) {
    state.incomplete += token.text;
    if (!state.characters_at_once) return;
    std::string characters;
    TakeCompleteUtf8(state.incomplete, characters);
    return AppendText(state, characters, text);
  }
  EndBytes(state, text);
  if (token.has_first_text && state.at_start) {
    text += token.first_text;
    state.at_start = false;
  } else {
    AppendText(state, token.text, text);
  }
}

void TokenDecoder::Finish(DecodeState& state, std::string& text) const {
  kind_ == Kind::kByteLevel ? TakeAllUtf8(state.incomplete, text, Repair::kEachSubpart)
                            : EndBytes(state, text);
}

void TokenDecoder::EndBytes(DecodeState& state, std::string& text) const {
  if (state.incomplete.empty()) return;
  const std::string bytes = std::exchange(state.incomplete, {});
  if (IsWellFormed(bytes)) return AppendText(state, bytes, text);
  std::string characters;
  for (size_t i = 0; i < bytes.size(); ++i) characters += kReplacementCharacter;
  AppendText(state, characters, text);
}

void TokenDecoder::AppendText(DecodeState& state, std::string_view added, std::string& text) const {
  if (added.empty()) return;
  if (state.at_start && !strip_.empty() && added.starts_with(strip_))
    added.remove_prefix(strip_.size());
  state.at_start = false;
  text += added;
}

}  // namespace lamina
