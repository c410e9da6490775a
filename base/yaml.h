// Strict reading of YAML configuration. Every mistake comes back as "FILE:LINE: what is wrong, what
// was expected".
//
//   LAMINA_ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(text, file));
//   YamlErrors errors(file);
//   YamlMap map(root, "the file", errors);
//   map.ReadInt("version", &config.version, 1, 1);
//   YamlMap limits = map.Child("limits");
//   limits.ReadDuration("step_timeout", &config.step_timeout);
//   limits.Close();   // keys that nobody read are errors
//   map.Close();
//   LAMINA_RETURN_IF_ERROR(errors.status());
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace lamina {

// The file as a plain tree. Scalars keep their text; ${NAME} in it has been replaced by the
// environment variable.
struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMapping };
  struct Entry;

  Kind kind = Kind::kNull;
  int line = 1;  // counts from 1
  std::string scalar;
  std::vector<YamlNode> items;  // kSequence
  std::vector<Entry> entries;   // kMapping, in the file's order; no key twice
};
struct YamlNode::Entry {
  std::string key;
  int line = 1;
  YamlNode value;
};

// One document. kInvalidArgument: not YAML, a key twice, a variable that is not set, an anchor or
// alias, nesting beyond any configuration's need.
Result<YamlNode> ParseYaml(const std::string& text, const std::string& file);

// Collects what is wrong while a tree is read; the mistake nearest to the file's start is the one
// reported.
class YamlErrors {
 public:
  explicit YamlErrors(std::string file) : file_(std::move(file)) {}

  void Add(int line, const std::string& message);
  // Stands before others of its line: a misspelt key rather than the missing one.
  void AddCause(int line, const std::string& message);
  Status status() const { return status_; }

 private:
  std::string file_;
  int line_ = 0;
  Status status_;
};

// One mapping of the tree. Borrows the node and the errors. A Read... leaves `*value` as it is if
// the key is absent or wrong.
class YamlMap {
 public:
  // `section` names the mapping in messages: "limits", "node 'm0'". A node that is neither a
  // mapping nor empty is an error.
  YamlMap(const YamlNode& node, std::string section, YamlErrors& errors);

  int line() const { return node_.line; }
  const std::string& section() const { return section_; }
  void Rename(std::string section) { section_ = std::move(section); }

  // Line of `key`, or of the mapping if the key is absent.
  int LineOf(const std::string& key) const;

  void ReadString(const std::string& key, std::string* value);
  void ReadChoice(const std::string& key, std::string* value,
                  const std::vector<std::string>& choices);
  void ReadInt(const std::string& key, int* value, int min, int max);
  // True | false.
  void ReadBool(const std::string& key, bool* value);
  // Finite, not negative.
  void ReadDouble(const std::string& key, double* value);
  // As ParseSize.
  void ReadSize(const std::string& key, int64_t* value, int64_t min);
  // As ParseDuration, above zero.
  void ReadDuration(const std::string& key, Clock::duration* value);
  // A mapping of scalars.
  void ReadStrings(const std::string& key, std::vector<std::pair<std::string, std::string>>* value);

  // Lists such as [1, 4, 16], or one value alone; an empty list is an error.
  void ReadInts(const std::string& key, std::vector<int>* values, int min, int max);
  void ReadChoices(const std::string& key, std::vector<std::string>* values,
                   const std::vector<std::string>& choices);

  YamlMap Child(const std::string& key);               // absent: an empty mapping
  std::vector<YamlMap> Items(const std::string& key);  // a sequence of mappings; absent: none

  bool Has(const std::string& key) { return Find(key) != nullptr; }

  // The key must be there; `why` ends the message.
  void Require(const std::string& key, const std::string& why = "");

  // Adds an error at the key's line.
  void Fail(const std::string& key, const std::string& message) {
    errors_->Add(LineOf(key), message);
  }

  // Keys that were never asked for are errors, which list those that were.
  void Close();

 private:
  const YamlNode::Entry* Find(const std::string& key);  // and remembers the key as known
  const YamlNode* Scalar(const std::string& key, const std::string& expected);
  std::vector<const YamlNode*> Scalars(const std::string& key, const std::string& expected);

  const YamlNode& node_;
  std::string section_;
  YamlErrors* errors_;
  std::vector<std::string> known_;
};

}  // namespace lamina
