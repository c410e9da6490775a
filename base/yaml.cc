#include "base/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <utility>

#include "base/units.h"

namespace lamina {
namespace {

constexpr size_t kMaxDepth = 16;  // a cluster file needs 4

constexpr size_t kMaxMessageBytes = 1000;  // what the file holds may be longer

// One line for a person, with nothing in it that a terminal acts on. The end stays: what was
// expected.
std::string ForReading(std::string message) {
  if (message.size() > kMaxMessageBytes) {
    // A character of UTF-8.
    const auto is_inside = [&](size_t at) { return (message[at] & 0xC0) == 0x80; };
    size_t begin = kMaxMessageBytes / 2, end = message.size() - kMaxMessageBytes / 2;
    while (begin > 0 && is_inside(begin)) --begin;
    while (end < message.size() && is_inside(end)) ++end;
    message.replace(begin, end - begin, "...");
  }
  std::ranges::replace_if(
      message, [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; }, '?');
  return message;
}

std::string At(const std::string& file, int line, const std::string& message) {
  return file + ":" + std::to_string(line) + ": " + ForReading(message);
}

// Builds our tree from yaml-cpp's events. yaml-cpp's own tree expands aliases of aliases without
// bounds, so it is not used. An event handler cannot stop the parser: after a mistake the builder
// goes on and keeps the first one.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& file) : file_(file) {}

  Status status() const { return status_; }
  YamlNode TakeRoot() { return std::move(root_); }
  int start_line() const { return start_line_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    start_line_ = std::max(0, mark.line) + 1;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Add(NewNode(YamlNode::Kind::kNull, mark, anchor));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Error(mark.line + 1, "aliases (*name) are not supported");
    Add(NewNode(YamlNode::Kind::kNull, mark, 0));
  }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode node = NewNode(YamlNode::Kind::kScalar, mark, anchor);
    node.scalar = Expand(value, node.line);
    Add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(NewNode(YamlNode::Kind::kSequence, mark, anchor));
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(NewNode(YamlNode::Kind::kMapping, mark, anchor));
  }
  void OnMapEnd() override { Close(); }

 private:
  struct OpenNode {
    YamlNode node;
    std::optional<YamlNode::Entry> entry;  // in a mapping: the key that waits for its value
  };

  YamlNode NewNode(YamlNode::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    YamlNode node;
    node.kind = kind;
    // yaml-cpp counts lines from 0, and has -1 where it knows none.
    node.line = std::max(0, mark.line) + 1;
    if (anchor != 0) Error(node.line, "anchors (&name) are not supported");
    return node;
  }

  void Open(YamlNode node) {
    if (open_.size() == kMaxDepth) Error(node.line, "nested too deeply");
    open_.push_back({std::move(node), std::nullopt});
  }

  void Close() {
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    Add(std::move(node));
  }

  // Adds a complete node to the innermost open one. After a mistake nobody will look at the tree.
  void Add(YamlNode node) {
    if (!status_.ok()) return;
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    OpenNode& parent = open_.back();
    if (parent.node.kind == YamlNode::Kind::kSequence) {
      parent.node.items.push_back(std::move(node));
    } else if (parent.entry) {
      parent.entry->value = std::move(node);
      parent.node.entries.push_back(*std::exchange(parent.entry, std::nullopt));
    } else {
      AddKey(parent, node);
    }
  }

  void AddKey(OpenNode& parent, const YamlNode& key) {
    if (key.kind != YamlNode::Kind::kScalar) return Error(key.line, "a key must be a plain word");
    const bool twice = std::ranges::any_of(
        parent.node.entries, [&](const YamlNode::Entry& other) { return other.key == key.scalar; });
    if (twice) return Error(key.line, "key '" + key.scalar + "' stands here twice");
    parent.entry = YamlNode::Entry{key.scalar, key.line, {}};
  }

  // Replaces each ${NAME} by the environment variable's value. The value itself is not expanded.
  std::string Expand(const std::string& text, int line) {
    std::string out;
    size_t done = 0;
    for (size_t at = text.find("${"); at != std::string::npos; at = text.find("${", done)) {
      const size_t end = text.find('}', at);
      if (end == std::string::npos) {
        Error(line, "'${' without '}' in '" + text + "'");
        return text;
      }
      const std::string name = text.substr(at + 2, end - at - 2);
      const char* value = std::getenv(name.c_str());
      if (value == nullptr) Error(line, "environment variable '" + name + "' is not set");
      out += text.substr(done, at - done) + (value != nullptr ? value : "");
      done = end + 1;
    }
    return out + text.substr(done);
  }

  void Error(int line, const std::string& message) {
    if (status_.ok()) status_ = InvalidArgument(At(file_, line, message));
  }

  const std::string& file_;
  Status status_;
  int start_line_ = 1;
  YamlNode root_;
  std::vector<OpenNode> open_;
};

template <typename T>
std::optional<T> ParseNumber(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

Result<YamlNode> ParseYaml(const std::string& text, const std::string& file) {
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    TreeBuilder builder(file);
    parser.HandleNextDocument(builder);
    LAMINA_RETURN_IF_ERROR(builder.status());
    // Looks for one more document only: behind some mistakes yaml-cpp sees empty documents without
    // end.
    TreeBuilder rest(file);
    if (parser.HandleNextDocument(rest)) {
      return InvalidArgument(
          At(file, rest.start_line(), "expected the end of the file: the document ended above"));
    }
    return builder.TakeRoot();
  } catch (const YAML::Exception& error) {
    return InvalidArgument(At(file, std::max(0, error.mark.line) + 1, error.msg));
  }
}

void YamlErrors::Add(int line, const std::string& message) {
  if (status_.ok() || line < line_) AddCause(line, message);
}

void YamlErrors::AddCause(int line, const std::string& message) {
  if (!status_.ok() && line_ < line) return;
  line_ = line;
  status_ = InvalidArgument(At(file_, line, message));
}

YamlMap::YamlMap(const YamlNode& node, std::string section, YamlErrors& errors)
    : node_(node), section_(std::move(section)), errors_(&errors) {
  if (node.kind != YamlNode::Kind::kMapping && node.kind != YamlNode::Kind::kNull) {
    errors_->Add(node.line, section_ + " must be a mapping of keys to values");
  }
}

int YamlMap::LineOf(const std::string& key) const {
  for (const YamlNode::Entry& entry : node_.entries) {
    if (entry.key == key) return entry.line;
  }
  return node_.line;
}

const YamlNode::Entry* YamlMap::Find(const std::string& key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
  for (const YamlNode::Entry& entry : node_.entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

const YamlNode* YamlMap::Scalar(const std::string& key, const std::string& expected) {
  const YamlNode::Entry* entry = Find(key);
  if (entry == nullptr) return nullptr;
  if (entry->value.kind == YamlNode::Kind::kScalar) return &entry->value;
  errors_->Add(entry->line, "'" + key + "' has no single value: expected " + expected);
  return nullptr;
}

void YamlMap::ReadString(const std::string& key, std::string* value) {
  if (const YamlNode* node = Scalar(key, "a text")) *value = node->scalar;
}

void YamlMap::ReadChoice(const std::string& key, std::string* value,
                         const std::vector<std::string>& choices) {
  const YamlNode* node = Scalar(key, "one of " + Join(choices));
  if (node == nullptr) return;
  if (std::find(choices.begin(), choices.end(), node->scalar) == choices.end()) {
    Fail(key, "'" + key + "' is '" + node->scalar + "': expected " +
                  (choices.size() == 1 ? choices[0] : "one of " + Join(choices)));
    return;
  }
  *value = node->scalar;
}

void YamlMap::ReadBool(const std::string& key, bool* value) {
  const YamlNode* node = Scalar(key, "true or false");
  if (node == nullptr) return;
  if (node->scalar != "true" && node->scalar != "false") {
    Fail(key, "'" + key + "' is '" + node->scalar + "': expected true or false");
    return;
  }
  *value = node->scalar == "true";
}

void YamlMap::ReadInt(const std::string& key, int* value, int min, int max) {
  const std::string expected =
      min == max ? std::to_string(min)
                 : "a whole number from " + std::to_string(min) + " to " + std::to_string(max);
  const YamlNode* node = Scalar(key, expected);
  if (node == nullptr) return;
  const std::optional<int> number = ParseNumber<int>(node->scalar);
  if (!number || *number < min || *number > max) {
    Fail(key, "'" + key + "' is '" + node->scalar + "': expected " + expected);
    return;
  }
  *value = *number;
}

void YamlMap::ReadDouble(const std::string& key, double* value) {
  const YamlNode* node = Scalar(key, "a number");
  if (node == nullptr) return;
  const std::optional<double> number = ParseNumber<double>(node->scalar);
  if (!number || !std::isfinite(*number) || *number < 0) {
    Fail(key, "'" + key + "' is '" + node->scalar + "': expected a number, 0 or more");
    return;
  }
  *value = *number;
}

void YamlMap::ReadSize(const std::string& key, int64_t* value, int64_t min) {
  const YamlNode* node = Scalar(key, "a size such as 512MiB");
  if (node == nullptr) return;
  const Result<int64_t> size = ParseSize(node->scalar);
  if (!size.ok()) return Fail(key, "'" + key + "': " + size.status().message());
  if (*size < min)
    return Fail(key,
                "'" + key + "' is '" + node->scalar + "': expected at least " + FormatSize(min));
  *value = *size;
}

void YamlMap::ReadDuration(const std::string& key, Clock::duration* value) {
  const YamlNode* node = Scalar(key, "a duration such as 10s");
  if (node == nullptr) return;
  const Result<Clock::duration> duration = ParseDuration(node->scalar);
  if (!duration.ok()) return Fail(key, "'" + key + "': " + duration.status().message());
  if (*duration <= Clock::duration::zero())
    return Fail(key, "'" + key + "' is '" + node->scalar + "': expected more than 0");
  *value = *duration;
}

void YamlMap::ReadStrings(const std::string& key,
                          std::vector<std::pair<std::string, std::string>>* value) {
  const YamlNode::Entry* entry = Find(key);
  if (entry == nullptr || entry->value.kind == YamlNode::Kind::kNull) return;
  if (entry->value.kind != YamlNode::Kind::kMapping)
    return Fail(key, "'" + key + "' must be a mapping of names to texts");
  for (const YamlNode::Entry& item : entry->value.entries) {
    if (item.value.kind != YamlNode::Kind::kScalar) {
      errors_->Add(item.line, "'" + item.key + "' has no single value: expected a text");
      continue;
    }
    value->emplace_back(item.key, item.value.scalar);
  }
}

std::vector<const YamlNode*> YamlMap::Scalars(const std::string& key, const std::string& expected) {
  const YamlNode::Entry* entry = Find(key);
  if (entry == nullptr) return {};
  // One value alone is a list of one.
  if (entry->value.kind == YamlNode::Kind::kScalar) return {&entry->value};
  std::vector<const YamlNode*> scalars;
  for (const YamlNode& item : entry->value.items) {
    if (item.kind == YamlNode::Kind::kScalar) scalars.push_back(&item);
  }
  if (!scalars.empty() && scalars.size() == entry->value.items.size()) return scalars;
  Fail(key, "'" + key + "' must be a list such as [a, b]: expected " + expected + " in it");
  return {};
}

void YamlMap::ReadInts(const std::string& key, std::vector<int>* values, int min, int max) {
  const std::string expected =
      "whole numbers from " + std::to_string(min) + " to " + std::to_string(max);
  std::vector<int> numbers;
  for (const YamlNode* node : Scalars(key, expected)) {
    const std::optional<int> number = ParseNumber<int>(node->scalar);
    if (!number || *number < min || *number > max)
      return errors_->Add(node->line,
                          "'" + key + "' has '" + node->scalar + "': expected " + expected);
    numbers.push_back(*number);
  }
  if (!numbers.empty()) *values = std::move(numbers);
}

void YamlMap::ReadChoices(const std::string& key, std::vector<std::string>* values,
                          const std::vector<std::string>& choices) {
  std::vector<std::string> words;
  for (const YamlNode* node : Scalars(key, "of " + Join(choices))) {
    if (std::find(choices.begin(), choices.end(), node->scalar) == choices.end())
      return errors_->Add(
          node->line, "'" + key + "' has '" + node->scalar + "': expected one of " + Join(choices));
    words.push_back(node->scalar);
  }
  if (!words.empty()) *values = std::move(words);
}

YamlMap YamlMap::Child(const std::string& key) {
  static const YamlNode kAbsent;
  const YamlNode::Entry* entry = Find(key);
  return YamlMap(entry != nullptr ? entry->value : kAbsent, "'" + key + "'", *errors_);
}

std::vector<YamlMap> YamlMap::Items(const std::string& key) {
  std::vector<YamlMap> items;
  const YamlNode::Entry* entry = Find(key);
  if (entry == nullptr || entry->value.kind == YamlNode::Kind::kNull) return items;
  if (entry->value.kind != YamlNode::Kind::kSequence) {
    Fail(key, "'" + key + "' must be a list: lines that begin with '-'");
    return items;
  }
  for (const YamlNode& item : entry->value.items)
    items.emplace_back(item, "an item of '" + key + "'", *errors_);
  return items;
}

void YamlMap::Require(const std::string& key, const std::string& why) {
  if (Find(key) == nullptr)
    errors_->Add(node_.line, section_ + " needs '" + key + "'" + (why.empty() ? "" : ": " + why));
}

void YamlMap::Close() {
  for (const YamlNode::Entry& entry : node_.entries) {
    if (std::find(known_.begin(), known_.end(), entry.key) != known_.end()) continue;
    // The unknown key may be why Require missed another one.
    errors_->AddCause(entry.line, "unknown key '" + entry.key + "' under " + section_ +
                                      "; known keys: " + Join(known_));
  }
}

}  // namespace lamina
