#include "text/template_processor.h"

namespace lamina {
namespace {

constexpr size_t kMaxTokens = 256;  // around a text; in use are one or two

// The ids of a special token of the template; "special_tokens" lists them by name.
Status AddSpecial(const JsonNode& processor, const JsonNode& piece, std::vector<TokenId>& ids) {
  LAMINA_ASSIGN_OR_RETURN(const JsonNode name_node, piece.Get("id"));
  LAMINA_ASSIGN_OR_RETURN(const std::string name, name_node.Text());
  LAMINA_ASSIGN_OR_RETURN(const JsonNode specials, processor.Get("special_tokens"));
  LAMINA_ASSIGN_OR_RETURN(const JsonNode special, specials.Get(name));
  return special.ForEach("ids", [&](const JsonNode& node) -> Status {
    if (ids.size() > kMaxTokens) return OkStatus();  // it will be refused
    LAMINA_ASSIGN_OR_RETURN(const int64_t id, node.Int(0, INT32_MAX));
    ids.push_back(static_cast<TokenId>(id));
    return OkStatus();
  });
}

}  // namespace

TemplateProcessor::TemplateProcessor(std::optional<TokenId> bos, std::optional<TokenId> eos) {
  if (bos) before_.push_back(*bos);
  if (eos) after_.push_back(*eos);
}

Result<TemplateProcessor> TemplateProcessor::Read(const JsonNode& node) {
  TemplateProcessor processor;
  LAMINA_RETURN_IF_ERROR(processor.Add(node, 0));
  return processor;
}

Status TemplateProcessor::Add(const JsonNode& node, int depth) {
  LAMINA_ASSIGN_OR_RETURN(const JsonNode type_node, node.Get("type"));
  LAMINA_ASSIGN_OR_RETURN(const std::string type, type_node.Text());
  if (type == "Sequence" && depth < kMaxSequenceDepth) {
    return node.ForEach("processors", [&](const JsonNode& entry) { return Add(entry, depth + 1); });
  }
  if (type == "ByteLevel") return OkStatus();  // about offsets only
  if (type == "TemplateProcessing") return AddTemplate(node);
  return type_node.Unsupported("understood are TemplateProcessing, ByteLevel and Sequence");
}

Status TemplateProcessor::AddTemplate(const JsonNode& node) {
  std::vector<TokenId> before, after;
  int num_texts = 0;
  LAMINA_RETURN_IF_ERROR(node.ForEach("single", [&](const JsonNode& piece) -> Status {
    if (piece.Has("Sequence")) return ++num_texts, OkStatus();
    LAMINA_ASSIGN_OR_RETURN(const JsonNode special, piece.Get("SpecialToken"));
    return AddSpecial(node, special, num_texts == 0 ? before : after);
  }));
  if (before.size() + after.size() > kMaxTokens || before_.size() + after_.size() > kMaxTokens) {
    return InvalidArgument(node.path() + " puts " + std::to_string(before.size() + after.size()) +
                           " tokens around each text, expected at most " +
                           std::to_string(kMaxTokens));
  }
  if (num_texts != 1)
    return InvalidArgument(node.path() + ".single has the text " + std::to_string(num_texts) +
                           " times, expected once");
  before_.insert(before_.begin(), before.begin(), before.end());
  after_.insert(after_.end(), after.begin(), after.end());
  return OkStatus();
}

}  // namespace lamina
