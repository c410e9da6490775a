#include "base/json_keys.h"

#include <fmt/format.h>

#include <utility>

namespace lamina {
namespace {

using nlohmann::json;

// Functions that walk or copy JSON recurse, so deep nesting could overflow the stack.
constexpr int kMaxJsonDepth = 100;

// A value as a message shows it: short, and valid UTF-8 whatever bytes it contains.
std::string Shown(const json* value) {
  if (value == nullptr) return "missing";
  constexpr size_t kMaxShown = 60;
  std::string text = value->dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

std::string Expected(IntRange range) {
  return fmt::format("an integer from {} to {}", range.min, range.max);
}
std::string Expected(RealRange range) {
  return fmt::format("a number from {} to {}", range.min, range.max);
}

}  // namespace

bool JsonKeys::Has(std::string_view key) const { return Find(key) != nullptr; }

const json* JsonKeys::Find(std::string_view key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool JsonKeys::IsNull(std::string_view key) const {
  const auto found = object_.find(key);
  return found != object_.end() && found->is_null();
}

void JsonKeys::Keep(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

std::optional<int64_t> JsonKeys::IntIn(const json& value, IntRange range) const {
  if (!value.is_number_integer()) return std::nullopt;
  // get<int64_t>() would make a negative number of it.
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return std::nullopt;
  const auto number = value.get<int64_t>();
  if (number < range.min || number > range.max) return std::nullopt;
  return number;
}

std::optional<int64_t> JsonKeys::OptionalInt(std::string_view key, IntRange range) {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = IntIn(*value, range);
  if (!number) Reject(key, Expected(range));
  return number;
}

int64_t JsonKeys::Int(std::string_view key, IntRange range) {
  if (!Has(key)) Reject(key, Expected(range));
  return OptionalInt(key, range).value_or(range.min);
}

std::optional<double> JsonKeys::OptionalReal(std::string_view key, RealRange range) {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    const auto number = value->get<double>();
    if (number >= range.min && number <= range.max) return number;
  }
  Reject(key, Expected(range));
  return std::nullopt;
}

double JsonKeys::Real(std::string_view key, RealRange range) {
  if (!Has(key)) Reject(key, Expected(range));
  return OptionalReal(key, range).value_or(range.min);
}

std::optional<bool> JsonKeys::OptionalBool(std::string_view key) {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  Reject(key, "true or false");
  return std::nullopt;
}

std::optional<std::string> JsonKeys::OptionalString(std::string_view key) {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  Reject(key, "a string");
  return std::nullopt;
}

std::vector<int64_t> JsonKeys::IntOrList(std::string_view key, IntRange range) {
  const json* value = Find(key);
  if (value == nullptr) return {};
  std::vector<int64_t> numbers;
  const json list = value->is_array() ? *value : json::array({*value});
  for (const json& element : list) {
    const std::optional<int64_t> number = IntIn(element, range);
    if (number) numbers.push_back(*number);
  }
  if (numbers.size() == list.size()) return numbers;
  Reject(key, Expected(range) + " or a list of them");
  return {};
}

void JsonKeys::Reject(std::string_view key, std::string_view expected, StatusCode code) {
  if (!status_.ok()) return;
  status_ = Status(
      code, fmt::format("{}: \"{}\" is {}, expected {}", where_, key, Shown(Find(key)), expected));
}

Result<json> ParseJsonObject(const std::string& text, const std::string& where) {
  try {
    // The callback drops what is nested too deeply while it is parsed.
    bool too_deep = false;
    json value = json::parse(text, [&](int depth, json::parse_event_t, json&) {
      too_deep |= depth > kMaxJsonDepth;
      return depth <= kMaxJsonDepth;
    });
    if (too_deep)
      return InvalidArgument(fmt::format("{} is nested more than {} deep", where, kMaxJsonDepth));
    if (value.is_object()) return value;
  } catch (const json::exception& error) {
    return InvalidArgument(where + " is not JSON: " + error.what());
  }
  return InvalidArgument(where + ": expected a JSON object");
}

}  // namespace lamina
