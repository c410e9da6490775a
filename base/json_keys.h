// Reads keys of a JSON object from a file that a user supplied. The first thing wrong is kept as a
// sentence with file, key, what stood there and what was expected; later calls return defaults, so
// that a parser reads like a list and checks status() once.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lamina {

struct IntRange {
  int64_t min = 0;
  int64_t max = 0;
};

struct RealRange {
  double min = 0;
  double max = 0;
};

// Thread: owner. REQUIRES: `object` is an object and outlives the reader. A key whose value is null
// counts as absent.
class JsonKeys {
 public:
  // `where`: the file, and the key path that leads to `object` if it is nested.
  JsonKeys(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  const Status& status() const { return status_; }
  const std::string& where() const { return where_; }
  void Keep(Status status);  // of a reader of a nested object, unless something failed before

  bool Has(std::string_view key) const;
  const nlohmann::json* Find(std::string_view key) const;  // null if absent
  bool IsNull(std::string_view key) const;                 // it stands there, with null

  int64_t Int(std::string_view key, IntRange range);  // must be there
  std::optional<int64_t> OptionalInt(std::string_view key, IntRange range);
  double Real(std::string_view key, RealRange range);  // must be there
  std::optional<double> OptionalReal(std::string_view key, RealRange range);
  std::optional<bool> OptionalBool(std::string_view key);
  std::optional<std::string> OptionalString(std::string_view key);
  std::vector<int64_t> IntOrList(std::string_view key, IntRange range);  // empty if absent

  // "FILE: "key" is VALUE, expected EXPECTED", kept unless something failed before.
  void Reject(std::string_view key, std::string_view expected,
              StatusCode code = StatusCode::kInvalidArgument);

 private:
  std::optional<int64_t> IntIn(const nlohmann::json& value, IntRange range) const;

  const nlohmann::json& object_;
  std::string where_;
  Status status_;
};

// The object in `text`. kInvalidArgument names `where` and the place of a syntax error.
Result<nlohmann::json> ParseJsonObject(const std::string& text, const std::string& where);

}  // namespace lamina
