#include "text/json_node.h"

namespace lamina {
namespace {

// The path of the value below `key`. No dot follows the root's "FILE: ".
std::string Below(const std::string& path, std::string_view key) {
  return path + (path.ends_with(": ") || path.empty() ? "" : ".") + std::string(key);
}

}  // namespace

bool JsonNode::Has(std::string_view key) const {
  if (!value_->is_object()) return false;
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

Result<JsonNode> JsonNode::Get(std::string_view key) const {
  if (!value_->is_object()) return Invalid("an object");
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null())
    return InvalidArgument(Below(path_, key) + " is missing");
  return JsonNode(*found, Below(path_, key));
}

Result<std::vector<JsonNode>> JsonNode::Entries() const {
  if (!value_->is_array()) return Invalid("a list");
  std::vector<JsonNode> entries;
  entries.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i)
    entries.emplace_back((*value_)[i], path_ + "[" + std::to_string(i) + "]");
  return entries;
}

Result<std::string> JsonNode::Text() const {
  if (!value_->is_string()) return Invalid("a string");
  return value_->get<std::string>();
}

Result<bool> JsonNode::Flag() const {
  if (!value_->is_boolean()) return Invalid("true or false");
  return value_->get<bool>();
}

Result<int64_t> JsonNode::Int(int64_t min, int64_t max) const {
  // nlohmann-json keeps positive integers unsigned, and get<int64_t>() would wrap those above
  // INT64_MAX.
  const bool fits = value_->is_number_integer() && (!value_->is_number_unsigned() ||
                                                    value_->get<uint64_t>() <= uint64_t{INT64_MAX});
  if (!fits || value_->get<int64_t>() < min || value_->get<int64_t>() > max) {
    return Invalid("an integer from " + std::to_string(min) + " to " + std::to_string(max));
  }
  return value_->get<int64_t>();
}

Result<std::string> JsonNode::Text(std::string_view key, std::string_view fallback) const {
  if (!Has(key)) return std::string(fallback);
  LAMINA_ASSIGN_OR_RETURN(const JsonNode node, Get(key));
  return node.Text();
}

Result<bool> JsonNode::Flag(std::string_view key, bool fallback) const {
  if (!Has(key)) return fallback;
  LAMINA_ASSIGN_OR_RETURN(const JsonNode node, Get(key));
  return node.Flag();
}

Result<int64_t> JsonNode::Int(std::string_view key, int64_t fallback, int64_t min,
                              int64_t max) const {
  if (!Has(key)) return fallback;
  LAMINA_ASSIGN_OR_RETURN(const JsonNode node, Get(key));
  return node.Int(min, max);
}

Status JsonNode::ForEach(std::string_view key,
                         const std::function<Status(const JsonNode&)>& visit) const {
  if (!Has(key)) return OkStatus();
  LAMINA_ASSIGN_OR_RETURN(const JsonNode list, Get(key));
  LAMINA_ASSIGN_OR_RETURN(const std::vector<JsonNode> entries, list.Entries());
  for (const JsonNode& entry : entries) LAMINA_RETURN_IF_ERROR(visit(entry));
  return OkStatus();
}

std::string JsonNode::Shown() const {
  if (value_->is_object()) return value_->empty() ? "an empty object" : "an object";
  if (value_->is_array()) return "a list";
  constexpr size_t kMaxShown = 80;
  // Only ASCII, so that the cut below never falls inside a character.
  std::string text =
      value_->dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

Status JsonNode::Unsupported(std::string_view understood) const {
  return Unimplemented(path_ + " is " + Shown() + ", which is not supported; " +
                       std::string(understood));
}

Status JsonNode::Invalid(std::string_view expected) const {
  return InvalidArgument(path_ + " is " + Shown() + ", expected " + std::string(expected));
}

}  // namespace lamina
