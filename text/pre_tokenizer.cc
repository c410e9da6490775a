#include "text/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "text/normalizer.h"
#include "text/utf8.h"

namespace lamina {
namespace {

constexpr std::string_view kUnderstoodPreTokenizers =
    "understood are ByteLevel, Split, Digits, Punctuation, Metaspace and Sequence";

constexpr int kMaxMarks = 4;  // each keeps a copy of the text; files in use have one

// How GPT-2 divides text, which is what ByteLevel with "use_regex" does.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace

Result<PreTokenizer> PreTokenizer::Read(const JsonNode& node) {
  PreTokenizer pre_tokenizer;
  LAMINA_RETURN_IF_ERROR(pre_tokenizer.Add(node, 0));
  return pre_tokenizer;
}

Status PreTokenizer::Add(const JsonNode& node, int depth) {
  LAMINA_ASSIGN_OR_RETURN(const JsonNode type_node, node.Get("type"));
  const nlohmann::json& type = type_node.value();
  if (type == "Sequence" && depth < kMaxSequenceDepth) {
    return node.ForEach("pretokenizers",
                        [&](const JsonNode& entry) { return Add(entry, depth + 1); });
  }
  if (steps_.size() >= kMaxSequenceSteps)
    return InvalidArgument(node.path() + " is one step of more than " +
                           std::to_string(kMaxSequenceSteps));
  if (is_byte_level_) return node.Unsupported("nothing may follow ByteLevel");
  if (type == "ByteLevel") return AddByteLevel(node);
  if (type == "Split") return AddSplit(node);
  if (type == "Metaspace") return AddMetaspace(node);
  if (type == "Digits") {
    LAMINA_ASSIGN_OR_RETURN(const bool individual, node.Flag("individual_digits", false));
    return AddPattern("\\p{N}", individual ? Behavior::kIsolated : Behavior::kContiguous);
  }
  if (type == "Punctuation") {
    LAMINA_ASSIGN_OR_RETURN(const Behavior behavior, ReadBehavior(node, "Isolated"));
    // Unicode's punctuation, and the characters of ASCII that Unicode counts as symbols.
    return AddPattern(R"([\p{P}$+<=>\^`|~])", behavior);
  }
  return type_node.Unsupported(kUnderstoodPreTokenizers);
}

Status PreTokenizer::AddPattern(std::string_view pattern, Behavior behavior) {
  Step step;
  step.behavior = behavior;
  LAMINA_ASSIGN_OR_RETURN(step.pattern, Regex::Compile(pattern));
  drops_text_ |= behavior == Behavior::kRemoved;
  steps_.push_back(std::move(step));
  return OkStatus();
}

Status PreTokenizer::AddByteLevel(const JsonNode& node) {
  LAMINA_ASSIGN_OR_RETURN(const bool add_prefix_space, node.Flag("add_prefix_space", true));
  LAMINA_ASSIGN_OR_RETURN(const bool use_regex, node.Flag("use_regex", true));
  // "trim_offsets" changes only where the library says that tokens stand in the text, which lamina
  // does not report.
  LAMINA_RETURN_IF_ERROR(node.Flag("trim_offsets", true).status());
  is_byte_level_ = true;
  if (add_prefix_space)
    steps_.push_back({nullptr, Behavior::kIsolated, false, " ", Prefix::kAlways});
  return use_regex ? AddPattern(kGpt2Pattern, Behavior::kIsolated) : OkStatus();
}

Status PreTokenizer::AddSplit(const JsonNode& node) {
  Step step;
  LAMINA_ASSIGN_OR_RETURN(step.pattern, ReadPattern(node));
  LAMINA_ASSIGN_OR_RETURN(step.behavior, ReadBehavior(node, ""));
  LAMINA_ASSIGN_OR_RETURN(step.invert, node.Flag("invert", false));
  drops_text_ |= step.behavior == Behavior::kRemoved;
  steps_.push_back(std::move(step));
  return OkStatus();
}

Status PreTokenizer::AddMetaspace(const JsonNode& node) {
  Step step;
  LAMINA_ASSIGN_OR_RETURN(step.mark, node.Text("replacement", "\xE2\x96\x81"));
  if (CountCodePoints(step.mark) != 1) return node.Get("replacement")->Invalid("one character");
  if (++num_marks_ > kMaxMarks)
    return node.Unsupported("a pre_tokenizer has at most " + std::to_string(kMaxMarks) +
                            " of the kind Metaspace");
  LAMINA_ASSIGN_OR_RETURN(step.prefix, ReadPrefix(node));
  LAMINA_ASSIGN_OR_RETURN(const bool split, node.Flag("split", true));
  const std::string mark = step.mark;
  steps_.push_back(std::move(step));
  if (!split) return OkStatus();
  // A word begins at each mark.
  Step divide;
  divide.behavior = Behavior::kMergedWithNext;
  LAMINA_ASSIGN_OR_RETURN(divide.pattern, Regex::Literal(mark));
  steps_.push_back(std::move(divide));
  return OkStatus();
}

// Older files have "add_prefix_space", a boolean, instead of "prepend_scheme".
Result<PreTokenizer::Prefix> PreTokenizer::ReadPrefix(const JsonNode& node) {
  if (!node.Has("prepend_scheme")) {
    LAMINA_ASSIGN_OR_RETURN(const bool add_prefix_space, node.Flag("add_prefix_space", true));
    return add_prefix_space ? Prefix::kAlways : Prefix::kNever;
  }
  LAMINA_ASSIGN_OR_RETURN(const JsonNode scheme, node.Get("prepend_scheme"));
  if (scheme.value() == "always") return Prefix::kAlways;
  if (scheme.value() == "first") return Prefix::kFirst;
  if (scheme.value() == "never") return Prefix::kNever;
  return scheme.Unsupported("understood are \"always\", \"first\" and \"never\"");
}

Result<PreTokenizer::Behavior> PreTokenizer::ReadBehavior(const JsonNode& node,
                                                          std::string_view fallback) {
  LAMINA_ASSIGN_OR_RETURN(const std::string behavior, node.Text("behavior", fallback));
  if (behavior == "Isolated") return Behavior::kIsolated;
  if (behavior == "Removed") return Behavior::kRemoved;
  if (behavior == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (behavior == "MergedWithNext") return Behavior::kMergedWithNext;
  if (behavior == "Contiguous") return Behavior::kContiguous;
  LAMINA_ASSIGN_OR_RETURN(const JsonNode value, node.Get("behavior"));
  return value.Unsupported(
      "understood are Isolated, Removed, MergedWithPrevious, MergedWithNext and Contiguous");
}

Result<PreTokenizer::Words> PreTokenizer::Divide(std::string_view text, bool is_start,
                                                 const TimeBudget& budget) const {
  Words words;
  if (!text.empty()) words.words.push_back(text);
  for (const Step& step : steps_) {
    if (step.pattern == nullptr) {
      Mark(step, is_start, words);
      continue;
    }
    std::vector<std::string_view> divided;
    for (const std::string_view word : words.words)
      LAMINA_RETURN_IF_ERROR(Divide(step, word, budget, divided));
    words.words = std::move(divided);
  }
  return words;
}

Status PreTokenizer::Divide(const Step& step, std::string_view text, const TimeBudget& budget,
                            std::vector<std::string_view>& words) {
  std::vector<Span> spans;
  size_t done = 0;
  LAMINA_RETURN_IF_ERROR(step.pattern->ForEachMatch(text, budget, [&](size_t begin, size_t end) {
    if (done < begin) AddSpan(step, {done, begin, step.invert}, spans);
    AddSpan(step, {begin, end, !step.invert}, spans);
    done = end;
  }));
  if (done < text.size()) AddSpan(step, {done, text.size(), step.invert}, spans);
  for (size_t i = 0; i < spans.size(); ++i) {
    Span& span = spans[i];
    // Only one match joins what follows it: of two in a row the first stays a word by itself.
    const bool joins_next = step.behavior == Behavior::kMergedWithNext && span.found &&
                            i + 1 < spans.size() && !spans[i + 1].found;
    if (joins_next) {
      spans[i + 1].begin = span.begin;
    } else if (span.begin < span.end && !(span.found && step.behavior == Behavior::kRemoved)) {
      words.push_back(text.substr(span.begin, span.end - span.begin));
    }
  }
  return OkStatus();
}

// Appends `span`, or makes it a part of the last span where the behavior joins the two. A span that
// took in a match counts as found, so MergedWithPrevious joins at most one match to it.
void PreTokenizer::AddSpan(const Step& step, Span span, std::vector<Span>& spans) {
  const bool joins =
      !spans.empty() &&
      ((step.behavior == Behavior::kContiguous && span.found == spans.back().found) ||
       (step.behavior == Behavior::kMergedWithPrevious && span.found && !spans.back().found));
  if (!joins) {
    spans.push_back(span);
    return;
  }
  spans.back().end = span.end;
  spans.back().found = span.found;
}

void PreTokenizer::Mark(const Step& step, bool is_start, Words& words) {
  for (size_t i = 0; i < words.words.size(); ++i) {
    const std::string_view word = words.words[i];
    const bool spaces_stay = step.mark == " ";
    const bool has_mark = word.starts_with(step.mark) || word.starts_with(' ');
    const bool prepend = !has_mark && (step.prefix == Prefix::kAlways ||
                                       (step.prefix == Prefix::kFirst && is_start && i == 0));
    if (!prepend && (spaces_stay || word.find(' ') == std::string_view::npos)) continue;
    std::string& marked = words.storage.emplace_back(prepend ? step.mark : "");
    marked.reserve(word.size() + step.mark.size());
    for (const char c : word) c == ' ' ? marked += step.mark : marked += c;
    words.words[i] = marked;
  }
}

}  // namespace lamina
