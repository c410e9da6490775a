#include "api/field_reader.h"

#include <cmath>

namespace lamina {
namespace {

std::string Short(double value) { return nlohmann::json(value).dump(); }

}  // namespace

std::string JsonTypeName(const nlohmann::json& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return "a boolean";
  if (value.is_number_integer()) return "an integer";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a string";
  return value.is_array() ? "a list" : "an object";
}

bool IntegerInRange(const nlohmann::json& value, int64_t min, int64_t max, int64_t* out) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return false;
  *out = value.get<int64_t>();
  return *out >= min && *out <= max;
}

const nlohmann::json* FieldReader::Find(const std::string& name) {
  seen_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void FieldReader::Fail(const std::string& param, const std::string& message) {
  if (!error_) error_ = ApiError{400, message, param};
}

void FieldReader::Read(const std::string& name, bool& target) {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_boolean())
    return Fail(name, "'" + name + "' must be true or false, not " + JsonTypeName(*value));
  target = value->get<bool>();
}

void FieldReader::Read(const std::string& name, std::string& target) {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_string())
    return Fail(name, "'" + name + "' must be a string, not " + JsonTypeName(*value));
  target = value->get<std::string>();
}

void FieldReader::ReadInteger(const std::string& name, int64_t min, int64_t max, int64_t& target) {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_number_integer())
    return Fail(name, "'" + name + "' must be an integer, not " + JsonTypeName(*value));
  int64_t number = 0;
  if (!IntegerInRange(*value, min, max, &number)) {
    const std::string upper =
        max == INT64_MAX ? "at least " + std::to_string(min)
                         : "between " + std::to_string(min) + " and " + std::to_string(max);
    return Fail(name, "'" + name + "' must be " + upper + ", not " + value->dump());
  }
  target = number;
}

void FieldReader::ReadNumber(const std::string& name, double min, double max, float& target) {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_number())
    return Fail(name, "'" + name + "' must be a number, not " + JsonTypeName(*value));
  const double number = value->get<double>();
  if (!(number >= min && number <= max))
    return Fail(name, "'" + name + "' must be between " + Short(min) + " and " + Short(max) +
                          ", not " + value->dump());
  target = static_cast<float>(number);
}

void FieldReader::ReadTokens(const std::string& name, int64_t limit, size_t max_count,
                             std::vector<TokenId>& target) {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_array())
    return Fail(name, "'" + name + "' must be a list of token ids, not " + JsonTypeName(*value));
  if (value->size() > max_count)
    return Fail(name, "'" + name + "' has " + std::to_string(value->size()) + " entries; at most " +
                          std::to_string(max_count) + " are possible");
  for (const nlohmann::json& item : *value) {
    int64_t token = 0;
    if (!IntegerInRange(item, 0, limit - 1, &token)) {
      return Fail(
          name, "'" + name + "' must hold token ids between 0 and " + std::to_string(limit - 1) +
                    ", not " +
                    (item.is_primitive() && !item.is_string() ? item.dump() : JsonTypeName(item)));
    }
    target.push_back(static_cast<TokenId>(token));
  }
}

void FieldReader::Refuse(const std::string& name, const std::string& instead) {
  const nlohmann::json* value = Find(name);
  if (value == nullptr || value->empty()) return;
  if (value->is_boolean() && !value->get<bool>()) return;
  if (value->is_number() && value->get<double>() == 0) return;
  if (value->is_string() && value->get_ref<const std::string&>().empty()) return;
  Fail(name, "'" + name + "' is not supported" + (instead.empty() ? "" : "; " + instead));
}

std::vector<std::string> FieldReader::Unknown(size_t max_count) const {
  std::vector<std::string> unknown;
  for (const auto& [name, value] : object_.items()) {
    if (unknown.size() == max_count) break;
    if (!seen_.contains(name)) unknown.push_back(name);
  }
  return unknown;
}

}  // namespace lamina
