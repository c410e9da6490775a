// Reads keys of a JSON object from a file that a user supplied. The first mistake is kept as a
// sentence with the file, the key, its value and what was expected, and calls with a mistake return
// a default. So a parser reads key after key and checks status() once, at its end.
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

// A key whose value is null counts as absent. Borrows the object. Thread: owner. REQUIRES: `object`
// is an object.
class JsonKeys {
 public:
  // `where` is the file and, if `object` is nested, the path of keys that leads to it.
  JsonKeys(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  // The first mistake, kInvalidArgument unless Keep or Reject were given another code; ok if none.
  const Status& status() const { return status_; }
  const std::string& where() const { return where_; }
  // Keeps the status of the reader of a nested object, unless a mistake was kept before.
  void Keep(Status status);

  bool Has(std::string_view key) const;
  const nlohmann::json* Find(std::string_view key) const;  // nullptr if absent
  bool IsNull(std::string_view key) const;  // whether the key is there with the value null

  // Int and Real are for keys that must be there; they return range.min on a mistake. The others
  // return nullopt if the key is absent or its value is wrong. Ranges include their ends.
  int64_t Int(std::string_view key, IntRange range);
  std::optional<int64_t> OptionalInt(std::string_view key, IntRange range);
  double Real(std::string_view key, RealRange range);
  std::optional<double> OptionalReal(std::string_view key, RealRange range);
  std::optional<bool> OptionalBool(std::string_view key);
  std::optional<std::string> OptionalString(std::string_view key);
  // One integer or a list of them; empty if the key is absent or a number is wrong.
  std::vector<int64_t> IntOrList(std::string_view key, IntRange range);

  // Keeps the mistake "FILE: "key" is VALUE, expected EXPECTED", unless one was kept before.
  void Reject(std::string_view key, std::string_view expected,
              StatusCode code = StatusCode::kInvalidArgument);

 private:
  std::optional<int64_t> IntIn(const nlohmann::json& value, IntRange range) const;

  const nlohmann::json& object_;
  std::string where_;
  Status status_;
};

// Parses the object in `text`. kInvalidArgument, with `where` and the place of a syntax error, if
// it is not JSON, is nested too deeply, or is no object.
Result<nlohmann::json> ParseJsonObject(const std::string& text, const std::string& where);

}  // namespace lamina
