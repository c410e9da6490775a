#include "gguf/gguf_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"

namespace lamina {
namespace {

// A file may name its end of turn in no key; then these control tokens are known to be one, as
// llama.cpp takes them.
constexpr std::string_view kEndsOfTurn[] = {"<|eot_id|>", "<|im_end|>", "<end_of_turn>",
                                            "<|end|>",    "<|eom_id|>", "<|endoftext|>"};

// Reads keys and keeps the first mistake.
class VocabularyReader {
 public:
  explicit VocabularyReader(const GgufModel& file) : file_(file) {}

  const Status& status() const { return status_; }

  std::string_view Text(const std::string& key) {
    const GgufValue* const value = Find(key, GgufType::kString, false, "a string");
    return value == nullptr ? std::string_view() : value->Strings().front();
  }
  std::vector<std::string_view> Texts(const std::string& key) {
    const GgufValue* const value = Find(key, GgufType::kString, true, "an array of strings");
    return value == nullptr ? std::vector<std::string_view>() : value->Strings();
  }
  std::optional<bool> Flag(const std::string& key) {
    const GgufValue* const value = Find(key, GgufType::kBool, false, "a boolean");
    return value == nullptr ? std::nullopt
                            : std::optional(std::to_integer<int>(value->bytes.front()) != 0);
  }
  std::vector<float> Scores(const std::string& key, size_t num_tokens) {
    const GgufValue* const value = Find(key, GgufType::kFloat32, true, "an array of float32");
    std::vector<float> scores;
    for (uint64_t i = 0; value != nullptr && i < value->count; ++i)
      scores.push_back(static_cast<float>(value->Real(i)));
    CheckLength(key, scores.size(), num_tokens);
    return scores;
  }
  std::vector<GgufVocabulary::Kind> Kinds(const std::string& key, size_t num_tokens) {
    using Kind = GgufVocabulary::Kind;
    const GgufValue* const value = Find(key, GgufType::kInt32, true, "an array of int32");
    std::vector<Kind> kinds;
    for (uint64_t i = 0; value != nullptr && i < value->count; ++i) {
      const int64_t number = value->Integer(i);
      const bool known = number >= static_cast<int64_t>(Kind::kNormal) &&
                         number <= static_cast<int64_t>(Kind::kByte);
      kinds.push_back(known ? static_cast<Kind>(number) : Kind::kNormal);
    }
    CheckLength(key, kinds.size(), num_tokens);
    return kinds;
  }
  std::optional<TokenId> Id(const std::string& key, size_t num_tokens) {
    const GgufValue* const value = file_.Value(key);
    if (value == nullptr) return std::nullopt;
    const int64_t id = !value->is_array && value->is_integer() ? value->Integer() : -1;
    // Converters write the largest uint32 for a token that the model does not have.
    if (id == static_cast<int64_t>(UINT32_MAX)) return std::nullopt;
    if (id >= 0 && id < static_cast<int64_t>(num_tokens)) return static_cast<TokenId>(id);
    Reject(key, fmt::format("an id below {}, the number of tokens", num_tokens));
    return std::nullopt;
  }

 private:
  const GgufValue* Find(const std::string& key, GgufType type, bool is_array,
                        std::string_view expected) {
    const GgufValue* const value = file_.Value(key);
    if (value == nullptr || (value->type == type && value->is_array == is_array)) return value;
    Reject(key, expected);
    return nullptr;
  }
  void CheckLength(const std::string& key, size_t length, size_t num_tokens) {
    if (length == 0 || length == num_tokens) return;
    Reject(key, fmt::format("{} elements, one for each token; it has {}", num_tokens, length));
  }
  void Reject(const std::string& key, std::string_view expected) {
    if (status_.ok())
      status_ = InvalidArgument(fmt::format("{}: {}: expected {}", file_.path(), key, expected));
  }

  const GgufModel& file_;
  Status status_;
};

}  // namespace

Result<GgufVocabulary> GgufVocabulary::Read(const GgufModel& file) {
  VocabularyReader reader(file);
  GgufVocabulary all;
  all.tokens = reader.Texts("tokenizer.ggml.tokens");
  const size_t count = all.tokens.size();
  if (reader.status().ok() && count == 0)
    return NotFound(file.path() + ": there is no tokenizer in this file (tokenizer.ggml.tokens)");
  all.model = reader.Text("tokenizer.ggml.model");
  all.pre = reader.Text("tokenizer.ggml.pre");
  all.scores = reader.Scores("tokenizer.ggml.scores", count);
  all.kinds = reader.Kinds("tokenizer.ggml.token_type", count);
  all.merges = reader.Texts("tokenizer.ggml.merges");
  all.bos = reader.Id("tokenizer.ggml.bos_token_id", count);
  all.eos = reader.Id("tokenizer.ggml.eos_token_id", count);
  all.unknown = reader.Id("tokenizer.ggml.unknown_token_id", count);
  all.padding = reader.Id("tokenizer.ggml.padding_token_id", count);
  // The older name of each key, where a file has no newer one.
  const auto infill_id = [&](const char* key, const char* older) {
    const std::optional<TokenId> id = reader.Id(key, count);
    return id ? id : reader.Id(older, count);
  };
  all.infill_prefix =
      infill_id("tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id");
  all.infill_suffix =
      infill_id("tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id");
  all.infill_middle =
      infill_id("tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id");
  all.add_bos = reader.Flag("tokenizer.ggml.add_bos_token");
  all.add_eos = reader.Flag("tokenizer.ggml.add_eos_token");
  all.add_space_prefix = reader.Flag("tokenizer.ggml.add_space_prefix");
  all.remove_extra_whitespaces = reader.Flag("tokenizer.ggml.remove_extra_whitespaces");
  if (file.Value("tokenizer.chat_template") != nullptr)
    all.chat_template = reader.Text("tokenizer.chat_template");
  const auto ends = [&](std::optional<TokenId> id) {
    if (id && id != all.eos && std::ranges::find(all.further_eos, *id) == all.further_eos.end())
      all.further_eos.push_back(*id);
  };
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    ends(reader.Id(key, count));
  // In the format of gpt-oss <|end|> ends one of an answer's messages, and others end the answer.
  const bool is_harmony = std::ranges::find(all.tokens, "<|return|>") != all.tokens.end();
  const auto ends_turn = [&](std::string_view token) {
    if (is_harmony && token == "<|end|>") return false;
    if (is_harmony && (token == "<|return|>" || token == "<|call|>")) return true;
    return std::ranges::find(kEndsOfTurn, token) != std::end(kEndsOfTurn);
  };
  for (size_t id = 0; id < count && !all.kinds.empty(); ++id) {
    if (all.kinds[id] == Kind::kControl && ends_turn(all.tokens[id]))
      ends(static_cast<TokenId>(id));
  }
  // What converters take for granted where a file says nothing.
  if (all.model == "llama") {
    if (!all.bos && count > 1) all.bos = 1;
    if (!all.eos && count > 2) all.eos = 2;
  }
  LAMINA_RETURN_IF_ERROR(reader.status());
  return all;
}

}  // namespace lamina
