#include "api/vector_requests.h"

#include <utility>

#include "api/field_reader.h"
#include "api/prompt_fields.h"

namespace lamina {
namespace {

using nlohmann::json;

constexpr size_t kMaxUnknownVectorFields = 16;

// Reads one request. The first error is kept, and reading goes on harmlessly.
class VectorReader {
 public:
  VectorReader(const json& body, const VectorRules& rules, VectorRequest& out)
      : rules_(rules), out_(out), reader_(body) {}

  std::optional<ApiError> Read(VectorForm::Kind kind, std::vector<std::string>& unknown_fields) {
    out_.form.kind = kind;
    reader_.Read("model", out_.options.model);
    const bool is_ollama =
        kind == VectorForm::Kind::kOllama || kind == VectorForm::Kind::kOllamaPlain;
    if (is_ollama) {
      ReadOllama();
    } else {
      if (kind == VectorForm::Kind::kEmbeddings) ReadEmbeddings();
      if (kind == VectorForm::Kind::kScores) ReadScores();
      if (kind == VectorForm::Kind::kRanking) ReadRanking();
      ReadCommon();
    }
    unknown_fields = reader_.Unknown(kMaxUnknownVectorFields);
    if (is_ollama && !unknown_fields.empty())
      reader_.Fail(unknown_fields.front(), "'" + unknown_fields.front() + "' is not supported");
    return reader_.error();
  }

 private:
  void RefuseUnless(const std::string& name, std::initializer_list<json> harmless,
                    const std::string& why) {
    const json* value = reader_.Find(name);
    if (value == nullptr) return;
    for (const json& one : harmless) {
      if (*value == one) return;
    }
    reader_.Fail(name,
                 "'" + name + "' is not supported except " + harmless.begin()->dump() + ": " + why);
  }

  void ReadCommon() {
    ReadUrgency(reader_, out_.options);
    ReadIdentity(reader_, out_.options);
    ReadTruncation(reader_, "right", out_.options);  // as vLLM does for what is embedded
    reader_.Read("add_special_tokens", out_.add_special_tokens);
    reader_.Refuse("cache_salt", "the prefix cache is shared by all requests");
    reader_.Refuse("mm_processor_kwargs", "texts are all that is embedded");
    reader_.Refuse("messages", "'input' is text or token ids; render a chat with /tokenize");
    RefuseUnless("padding", {"do_not_pad"}, "texts are computed as long as they are");
    reader_.Ignore("user");
  }

  void ReadDimensions() {
    reader_.ReadInteger("dimensions", 1, rules_.width, out_.form.dimensions);
  }

  void ReadEmbeddings() {
    out_.field = "input";
    ReadPrompts(reader_, "input", rules_.vocab_size, kMaxTexts, out_.texts);
    std::string format = "float";
    reader_.Read("encoding_format", format);
    if (format != "float" && format != "base64")
      reader_.Fail("encoding_format", "'encoding_format' must be \"float\" or \"base64\"");
    out_.form.base64 = format == "base64";
    ReadDimensions();
    reader_.Read("normalize", out_.form.normalize);
    reader_.Read("use_activation", out_.form.normalize);
    RefuseUnless("embed_dtype", {"float32"}, "vectors are sent as they are computed");
    RefuseUnless("endianness", {"little", "native"}, "vectors are sent as clients expect them");
    RefusePooling();
  }

  void RefusePooling() {
    RefuseUnless("pooling", {"last", "LAST"}, "the vector is that of a text's last token");
    RefuseUnless("pooling_type", {"LAST", "last"}, "the vector is that of a text's last token");
    RefuseUnless("embd_normalize", {2}, "'normalize' false leaves vectors as long as they are");
  }

  // Text, or an object with one as 'text'; its text is added, and to `texts` too.
  void AddText(const std::string& name, const json& value, std::vector<std::string>* texts) {
    const json* text = &value;
    if (value.is_object() && value.contains("text")) text = &value["text"];
    if (!text->is_string())
      return reader_.Fail(name, "'" + name +
                                    "' must be text, an object with 'text', or a list of these, "
                                    "not " +
                                    JsonTypeName(*text));
    if (texts != nullptr) texts->push_back(text->get<std::string>());
    out_.texts.emplace_back(text->get<std::string>());
  }

  // One text or a list; returns how many.
  size_t ReadTexts(const std::string& name, std::vector<std::string>* texts = nullptr) {
    const json* value = reader_.Find(name);
    if (value == nullptr) {
      reader_.Fail(name, "'" + name + "' is missing");
      return 0;
    }
    if (!value->is_array()) {
      AddText(name, *value, texts);
      return 1;
    }
    if (value->empty() || value->size() > kMaxTexts) {
      reader_.Fail(name, "'" + name + "' has " + std::to_string(value->size()) +
                             " entries; between 1 and " + std::to_string(kMaxTexts) +
                             " are possible");
      return 0;
    }
    for (const json& one : *value) AddText(name, one, texts);
    return value->size();
  }

  // By the first of these names that is there.
  std::string NameOf(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (reader_.Find(name) != nullptr) return name;
    }
    return *names.begin();
  }

  void ReadScores() {
    const std::string first = NameOf({"text_1", "queries", "data_1"});
    const std::string second = NameOf({"text_2", "documents", "items", "data_2"});
    const size_t num_first = ReadTexts(first), num_second = ReadTexts(second);
    out_.field = num_first > 1 ? first : second;
    out_.form.num_queries = num_first;
    if (num_first != 1 && num_first != num_second)
      reader_.Fail(first, "'" + first + "' has " + std::to_string(num_first) + " texts and '" +
                              second + "' " + std::to_string(num_second) +
                              "; it must be one, or as many");
    reader_.Ignore("use_activation");
  }

  void ReadRanking() {
    const json* query = reader_.Find("query");
    if (query == nullptr) {
      reader_.Fail("query", "'query' is missing");
    } else if (query->is_array()) {
      reader_.Fail("query", "'query' must be one text, not a list");
    } else {
      AddText("query", *query, nullptr);
    }
    out_.field = "documents";
    out_.form.num_queries = 1;
    bool tells_documents = true;
    reader_.Read("return_documents", tells_documents);
    ReadTexts("documents", tells_documents ? &out_.form.documents : nullptr);
    reader_.ReadInteger("top_n", 0, INT64_MAX, out_.form.top_n);
    reader_.Refuse("rank_fields", "documents are compared by their 'text'");
    for (const char* name : {"max_tokens_per_doc", "max_chunks_per_doc"})
      reader_.Refuse(name, "use 'truncate_prompt_tokens' with 'truncation_side' \"right\"");
    reader_.Ignore("use_activation");
  }

  // Texts that are too long are cut unless the client says that they are not to be.
  void ReadOllama() {
    const bool plain = out_.form.kind == VectorForm::Kind::kOllamaPlain;
    out_.field = plain ? "prompt" : "input";
    out_.form.normalize = !plain;
    if (out_.options.model.empty()) reader_.Fail("model", "'model' is missing");
    const json* value = reader_.Find(out_.field);
    const bool is_text = value == nullptr || value->is_string() || value->is_array();
    if (!is_text || (plain && value != nullptr && !value->is_string()))
      reader_.Fail(out_.field, "'" + out_.field + "' must be " +
                                   (plain ? "a string" : "a string or a list of strings") +
                                   ", not " + JsonTypeName(*value));
    // Without a text the model is loaded, which it is.
    if (is_text && value != nullptr && *value != "" && *value != json::array())
      ReadTexts(out_.field);
    bool truncate = true;
    reader_.Read("truncate", truncate);
    if (truncate) out_.options.truncate_prompt_tokens = -1;
    out_.options.keep_first_tokens = true;
    if (!plain) ReadDimensions();
    for (const char* name : {"keep_alive", "options"}) reader_.Ignore(name);
  }

  const VectorRules& rules_;
  VectorRequest& out_;
  FieldReader reader_;
};

}  // namespace

std::optional<ApiError> ParseVectors(const json& body, VectorForm::Kind kind,
                                     const VectorRules& rules, VectorRequest& out,
                                     std::vector<std::string>& unknown_fields) {
  return VectorReader(body, rules, out).Read(kind, unknown_fields);
}

}  // namespace lamina
