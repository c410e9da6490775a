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

// A node of the file's tree. Scalars are kept as text, in which ${NAME} has been replaced by the
// value of the environment variable.
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

// Parses a file of one document. kInvalidArgument if it is not YAML, or has a key twice, a variable
// that is not set, an anchor or alias, nesting beyond any configuration's need, or more than one
// document.
Result<YamlNode> ParseYaml(const std::string& text, const std::string& file);

// Collects the mistakes that are found while a tree is read, and reports the one nearest to the
// file's start. Thread: owner.
class YamlErrors {
 public:
  explicit YamlErrors(std::string file) : file_(std::move(file)) {}

  // Among mistakes of one line, the one that was added first is reported.
  void Add(int line, const std::string& message);
  // Adds a mistake that goes before the others of its line because it is their cause: a misspelt
  // key rather than the key that is missing for it.
  void AddCause(int line, const std::string& message);
  // kInvalidArgument "FILE:LINE: MESSAGE"; ok if there was no mistake.
  Status status() const { return status_; }

 private:
  std::string file_;
  int line_ = 0;  // of the mistake in status_
  Status status_;
};

// Reads the keys of one mapping of the tree. Borrows the node and the errors. Every Read... leaves
// its output as it is if the key is absent, and also, with a mistake in the errors, if the value is
// wrong. Thread: owner.
class YamlMap {
 public:
  // `section` names the mapping in messages: "limits", "node 'm0'". A node that is neither a
  // mapping nor empty is a mistake.
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
  // "true" or "false".
  void ReadBool(const std::string& key, bool* value);
  // A finite number, not negative.
  void ReadDouble(const std::string& key, double* value);
  // A size in the notation of ParseSize (units.h), at least `min`.
  void ReadSize(const std::string& key, int64_t* value, int64_t min);
  // A duration in the notation of ParseDuration (units.h), more than zero.
  void ReadDuration(const std::string& key, Clock::duration* value);
  // A mapping of scalars, whose entries are appended to `*value` in the file's order.
  void ReadStrings(const std::string& key, std::vector<std::pair<std::string, std::string>>* value);

  // Lists such as [1, 4, 16], or one value alone. An empty list is a mistake.
  void ReadInts(const std::string& key, std::vector<int>* values, int min, int max);
  void ReadChoices(const std::string& key, std::vector<std::string>* values,
                   const std::vector<std::string>& choices);

  // The mapping under the key; an empty one if the key is absent.
  YamlMap Child(const std::string& key);
  // The mappings of the list under the key; none if the key is absent.
  std::vector<YamlMap> Items(const std::string& key);

  // Whether the key is there. It counts as known to Close.
  bool Has(const std::string& key) { return Find(key) != nullptr; }

  // Adds a mistake if the key is absent; `why` ends the message.
  void Require(const std::string& key, const std::string& why = "");

  // Adds a mistake at the key's line.
  void Fail(const std::string& key, const std::string& message) {
    errors_->Add(LineOf(key), message);
  }

  // Adds a mistake for every key that no call has asked for; the message lists the known keys.
  void Close();

 private:
  // Marks the key as known. nullptr if it is absent.
  const YamlNode::Entry* Find(const std::string& key);
  // The scalar, or the scalars of the list, under the key; nullptr or none if it is absent or, with
  // a mistake that names what was `expected`, if there is something else.
  const YamlNode* Scalar(const std::string& key, const std::string& expected);
  std::vector<const YamlNode*> Scalars(const std::string& key, const std::string& expected);

  const YamlNode& node_;
  std::string section_;
  YamlErrors* errors_;
  std::vector<std::string> known_;  // keys that some call has asked for
};

}  // namespace lamina
