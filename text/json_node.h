// A value inside a JSON file that a user supplied, together with the path that leads to it, so that
// every error names the place it is about.
//
// It serves nested formats such as tokenizer.json, where the kind of a node decides which keys may
// stand below it. Flat objects are read with base/json_keys.h.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lamina {

// Limits of tokenizer.json, which may come from anybody.
//
// A normalizer, pre-tokenizer or post-processor may be a "Sequence" of others, and so on: this
// deep.
inline constexpr int kMaxSequenceDepth = 16;
// Steps of one such part in all. Each step goes over the whole text; files in use have about ten.
inline constexpr size_t kMaxSequenceSteps = 128;
// Bytes of a token's spelling in the vocabulary. The longest in use have about 1 KiB.
inline constexpr size_t kMaxPieceBytes = 4 << 10;

// Borrows the JSON, which has to outlive the node. A key whose value is null counts as absent.
// Thread: any; immutable.
class JsonNode {
 public:
  // `path` is how messages name the value. The root has "FILE: "; the nodes below it get paths such
  // as "FILE: model.merges[3]".
  JsonNode(const nlohmann::json& value, std::string path)
      : value_(&value), path_(std::move(path)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& path() const { return path_; }

  // Whether this is an object with that key. False for values of other kinds.
  bool Has(std::string_view key) const;

  // The value below `key`. kInvalidArgument: this is no object, or the key is absent.
  Result<JsonNode> Get(std::string_view key) const;

  // The entries of an array. kInvalidArgument: this is no array.
  Result<std::vector<JsonNode>> Entries() const;

  // This value itself as a string, a boolean or an integer in [min, max]. kInvalidArgument: it is
  // of another kind or out of range.
  Result<std::string> Text() const;
  Result<bool> Flag() const;
  Result<int64_t> Int(int64_t min, int64_t max) const;

  // The value below `key`, or `fallback` if the key is absent. kInvalidArgument: the key is there
  // and its value is of another kind or out of range.
  Result<std::string> Text(std::string_view key, std::string_view fallback) const;
  Result<bool> Flag(std::string_view key, bool fallback) const;
  Result<int64_t> Int(std::string_view key, int64_t fallback, int64_t min, int64_t max) const;

  // Calls `visit` for each entry of the array below `key` until one call fails, and returns its
  // status. Does nothing if the key is absent. kInvalidArgument: the value is no array.
  Status ForEach(std::string_view key, const std::function<Status(const JsonNode&)>& visit) const;

  // Makes the error kUnimplemented "PATH is VALUE, which is not supported; UNDERSTOOD". A long
  // value is cut.
  Status Unsupported(std::string_view understood) const;
  // Makes the error kInvalidArgument "PATH is VALUE, expected EXPECTED".
  Status Invalid(std::string_view expected) const;

 private:
  std::string Shown() const;  // the value as messages quote it

  const nlohmann::json* value_;
  std::string path_;
};

}  // namespace lamina
