// A value somewhere in a JSON file that a user supplied, and the path that leads to it: what is
// wrong is said with its place.
//
// For formats that nest, where each level decides what may stand below. Flat objects:
// base/json_keys.h.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lamina {

inline constexpr int kMaxSequenceDepth = 16;  // of sequences of steps in sequences of steps
// Each goes over the whole text; in use are about ten.
inline constexpr size_t kMaxSequenceSteps = 128;
// Of the spelling of a token; the longest in use have about 1 KiB.
inline constexpr size_t kMaxPieceBytes = 4 << 10;

// Borrows the JSON. A key whose value is null counts as absent.
class JsonNode {
 public:
  // `path`: of the file at the root; grows as "FILE: model.merges[3]".
  JsonNode(const nlohmann::json& value, std::string path)
      : value_(&value), path_(std::move(path)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& path() const { return path_; }

  bool Has(std::string_view key) const;

  // kInvalidArgument: this is no object, or the key is absent.
  Result<JsonNode> Get(std::string_view key) const;

  // kInvalidArgument: this is no array.
  Result<std::vector<JsonNode>> Entries() const;

  // This value; kInvalidArgument: it is of another kind.
  Result<std::string> Text() const;
  Result<bool> Flag() const;
  Result<int64_t> Int(int64_t min, int64_t max) const;

  // The value of a key, or `fallback` if that is absent.
  Result<std::string> Text(std::string_view key, std::string_view fallback) const;
  Result<bool> Flag(std::string_view key, bool fallback) const;
  Result<int64_t> Int(std::string_view key, int64_t fallback, int64_t min, int64_t max) const;

  // Calls visit for each entry of the array below `key`, until one fails. Nothing if the key is
  // absent.
  Status ForEach(std::string_view key, const std::function<Status(const JsonNode&)>& visit) const;

  // kUnimplemented: "PATH is VALUE, which is not supported; UNDERSTOOD". What stood there is cut if
  // it is long.
  Status Unsupported(std::string_view understood) const;
  // kInvalidArgument: "PATH is VALUE, expected EXPECTED".
  Status Invalid(std::string_view expected) const;

 private:
  std::string Shown() const;

  const nlohmann::json* value_;
  std::string path_;
};

}  // namespace lamina
