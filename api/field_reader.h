// Reads the fields of a JSON object with checks, and says which one was wrong.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/api_error.h"
#include "base/ids.h"

namespace lamina {

// The first error is kept; reading goes on harmlessly after it. Absent fields and null leave the
// target as it is.
class FieldReader {
 public:
  // Borrows `object`. REQUIRES: it is a JSON object.
  explicit FieldReader(const nlohmann::json& object) : object_(object) {}

  // The field's value; nullptr if it is absent or null.
  const nlohmann::json* Find(const std::string& name);

  void Read(const std::string& name, bool& target);
  void Read(const std::string& name, std::string& target);
  void ReadInteger(const std::string& name, int64_t min, int64_t max, int64_t& target);
  // In both, `min` and `max` are themselves allowed.
  void ReadNumber(const std::string& name, double min, double max, float& target);

  // A list of integers in [0, limit).
  void ReadTokens(const std::string& name, int64_t limit, size_t max_count,
                  std::vector<TokenId>& target);

  // Refuses a field that lamina knows but does not support, unless it is absent, null, false, 0, ""
  // or empty.
  void Refuse(const std::string& name, const std::string& instead);

  // Marks a field as known although it has no effect here, so that Unknown does not name it.
  void Ignore(const std::string& name) { seen_.insert(name); }

  void Fail(const std::string& param, const std::string& message);
  const std::optional<ApiError>& error() const { return error_; }

  // The names of at most `max_count` fields of the object that none of the calls above asked for.
  std::vector<std::string> Unknown(size_t max_count) const;

 private:
  const nlohmann::json& object_;
  std::set<std::string> seen_;
  std::optional<ApiError> error_;
};

// "a string", "an integer", ... for messages.
std::string JsonTypeName(const nlohmann::json& value);

// True if `value` is an integer in [min, max]; *out is set.
bool IntegerInRange(const nlohmann::json& value, int64_t min, int64_t max, int64_t* out);

}  // namespace lamina
