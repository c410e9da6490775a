#include "text/normalizer.h"

#include <array>
#include <utility>

namespace lamina {
namespace {

// Beyond this factor a bound on the number of tokens says nothing any more (and the product of many
// factors would overflow).
constexpr size_t kMaxShrink = 1 << 20;

constexpr std::string_view kUnderstoodNormalizers =
    "understood are NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip and Sequence (convert "
    "the tokenizer, or use its "
    "tokenizer.model)";

std::optional<NormalForm> FormOf(std::string_view type) {
  constexpr std::array<std::pair<std::string_view, NormalForm>, 4> kForms = {
      {{"NFC", NormalForm::kNfc},
       {"NFD", NormalForm::kNfd},
       {"NFKC", NormalForm::kNfkc},
       {"NFKD", NormalForm::kNfkd}}};
  for (const auto& [name, form] : kForms) {
    if (name == type) return form;
  }
  return std::nullopt;
}

}  // namespace

Result<std::unique_ptr<Regex>> ReadPattern(const JsonNode& step) {
  LAMINA_ASSIGN_OR_RETURN(const JsonNode pattern, step.Get("pattern"));
  const bool is_text = pattern.Has("String");
  if (!is_text && !pattern.Has("Regex"))
    return pattern.Unsupported("understood are {\"String\": ...} and {\"Regex\": ...}");
  LAMINA_ASSIGN_OR_RETURN(const JsonNode node, pattern.Get(is_text ? "String" : "Regex"));
  LAMINA_ASSIGN_OR_RETURN(const std::string text, node.Text());
  auto regex = is_text ? Regex::Literal(text) : Regex::Compile(text);
  if (!regex.ok()) return regex.status().WithContext(node.path());
  return regex;
}

Result<Normalizer> Normalizer::Read(const JsonNode& node) {
  Normalizer normalizer;
  LAMINA_RETURN_IF_ERROR(normalizer.Add(node, 0));
  return normalizer;
}

Status Normalizer::Add(const JsonNode& node, int depth) {
  LAMINA_ASSIGN_OR_RETURN(const JsonNode type_node, node.Get("type"));
  LAMINA_ASSIGN_OR_RETURN(const std::string type, type_node.Text());
  if (type == "Sequence" && depth < kMaxSequenceDepth) {
    return node.ForEach("normalizers",
                        [&](const JsonNode& entry) { return Add(entry, depth + 1); });
  }
  if (steps_.size() == kMaxSequenceSteps)
    return InvalidArgument(node.path() + " is one step of more than " +
                           std::to_string(kMaxSequenceSteps));
  if (type == "Replace") return AddReplace(node);
  Step step;
  if (const auto form = FormOf(type)) {
    step.form = *form;
    MayShrink(4);  // a character of 4 bytes becomes 1; composition makes at most 9 bytes 3
  } else if (type == "Lowercase") {
    step.kind = Step::Kind::kLowercase;
    MayShrink(3);  // the Kelvin sign becomes k
  } else if (type == "Prepend") {
    step.kind = Step::Kind::kPrepend;
    LAMINA_ASSIGN_OR_RETURN(step.content, node.Text("prepend", ""));
  } else if (type == "Strip") {
    step.kind = Step::Kind::kStrip;
    LAMINA_ASSIGN_OR_RETURN(step.left, node.Flag("strip_left", true));
    LAMINA_ASSIGN_OR_RETURN(step.right, node.Flag("strip_right", true));
    max_shrink_ = std::nullopt;
  } else {
    return type_node.Unsupported(kUnderstoodNormalizers);
  }
  steps_.push_back(std::move(step));
  return OkStatus();
}

Status Normalizer::AddReplace(const JsonNode& node) {
  Step step;
  step.kind = Step::Kind::kReplace;
  LAMINA_ASSIGN_OR_RETURN(step.pattern, ReadPattern(node));
  LAMINA_ASSIGN_OR_RETURN(step.content, node.Text("content", ""));
  const nlohmann::json& pattern = node.value()["pattern"];
  const auto text = pattern.find("String");
  // A regular expression may find any length of text, and an empty replacement removes what is
  // found.
  if (text == pattern.end() || !text->is_string() || step.content.empty()) {
    max_shrink_ = std::nullopt;
  } else {
    MayShrink(text->get_ref<const std::string&>().size() / step.content.size() + 1);
  }
  steps_.push_back(std::move(step));
  return OkStatus();
}

void Normalizer::MayShrink(size_t factor) {
  if (max_shrink_ && factor > kMaxShrink / *max_shrink_) max_shrink_ = std::nullopt;
  if (max_shrink_) *max_shrink_ *= factor;
}

Result<std::string> Normalizer::Apply(std::string text, size_t max_bytes,
                                      const TimeBudget& budget) const {
  for (const Step& step : steps_) {
    LAMINA_RETURN_IF_ERROR(budget.Check());
    LAMINA_ASSIGN_OR_RETURN(text, Apply(step, std::move(text), max_bytes, budget));
    if (text.size() > max_bytes)
      return OutOfSpace("the tokenizer's normalizer makes more than " + std::to_string(max_bytes) +
                        " bytes of this text");
  }
  return text;
}

Result<std::string> Normalizer::Apply(const Step& step, std::string text, size_t max_bytes,
                                      const TimeBudget& budget) {
  switch (step.kind) {
    case Step::Kind::kForm: return Normalized(text, step.form);
    case Step::Kind::kLowercase: return Lowercase(text);
    case Step::Kind::kPrepend: return text.empty() ? text : step.content + text;
    case Step::Kind::kStrip:
      if (step.right) text.resize(text.size() - TrailingSpaceBytes(text));
      if (step.left) text.erase(0, LeadingSpaceBytes(text));
      return text;
    case Step::Kind::kReplace: break;
  }
  return step.pattern->ReplaceAll(text, step.content, max_bytes, budget);
}

}  // namespace lamina
