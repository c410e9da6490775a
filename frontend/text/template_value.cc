#include "frontend/text/template_value.h"

namespace lamina::chat {
namespace {

std::string RealText(double value) { return nlohmann::json(value).dump(); }

std::string QuotedForPython(const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string quoted(1, quote);
  for (const char c : text) {
    switch (c) {
      case '\n': quoted += "\\n"; break;
      case '\r': quoted += "\\r"; break;
      case '\t': quoted += "\\t"; break;
      case '\\': quoted += "\\\\"; break;
      default:
        if (c == quote) quoted += '\\';
        quoted += c;
    }
  }
  return quoted + quote;
}

std::string QuotedForJson(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Writes [a, b] or {"k": v} with json.dumps' separators; `write(i)` gives the text of item i.
template <typename Write>
std::string Bracketed(char open, char close, size_t count, int indent, int depth, Write write) {
  if (count == 0) return std::string{open, close};
  const auto line_break = [&](int level) { return "\n" + std::string(static_cast<size_t>(indent) * static_cast<size_t>(level), ' '); };
  std::string text(1, open);
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) text += indent < 0 ? ", " : ",";
    if (indent >= 0) text += line_break(depth + 1);
    text += write(i);
  }
  if (indent >= 0) text += line_break(depth);
  return text + close;
}

std::string JsonText(const Value& value, int indent, int depth) {
  if (const auto* items = value.list()) {
    return Bracketed('[', ']', items->size(), indent, depth, [&](size_t i) { return JsonText((*items)[i], indent, depth + 1); });
  }
  if (const auto* dict = value.dict()) {
    return Bracketed('{', '}', dict->items().size(), indent, depth, [&](size_t i) {
      const auto& [key, item] = dict->items()[i];
      return QuotedForJson(key) + ": " + JsonText(item, indent, depth + 1);
    });
  }
  if (value.string() != nullptr) return QuotedForJson(*value.string());
  if (value.boolean() != nullptr) return *value.boolean() ? "true" : "false";
  if (value.is_none() || value.is_undefined()) return "null";
  return value.ToText();
}

}  // namespace

const Value* Dict::Find(std::string_view key) const {
  for (const auto& [name, value] : items_) {
    if (name == key) return &value;
  }
  return nullptr;
}

void Dict::Set(std::string key, Value value) {
  for (auto& [name, old] : items_) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  Append(std::move(key), std::move(value));
}

void Dict::Append(std::string key, Value value) { items_.emplace_back(std::move(key), std::move(value)); }

Value Value::FromJson(const nlohmann::json& json) {
  switch (json.type()) {
    case nlohmann::json::value_t::boolean: return Value(json.get<bool>());
    case nlohmann::json::value_t::number_integer:
    case nlohmann::json::value_t::number_unsigned: return Value(json.get<int64_t>());
    case nlohmann::json::value_t::number_float: return Value(json.get<double>());
    case nlohmann::json::value_t::string: return Value(json.get<std::string>());
    case nlohmann::json::value_t::array: {
      List list;
      for (const auto& item : json) list.push_back(FromJson(item));
      return Value(std::move(list));
    }
    case nlohmann::json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) dict.Append(key, FromJson(item));
      return Value(std::move(dict));
    }
    default: return MakeNone();
  }
}

bool Value::Truthy() const {
  if (boolean() != nullptr) return *boolean();
  if (integer() != nullptr) return *integer() != 0;
  if (real() != nullptr) return *real() != 0;
  if (string() != nullptr) return !string()->empty();
  if (list() != nullptr) return !list()->empty();
  if (dict() != nullptr) return !dict()->items().empty();
  return function() != nullptr;
}

std::string Value::ToText() const {
  if (string() != nullptr) return *string();
  if (is_undefined()) return "";
  return Repr();
}

std::string Value::Repr() const {
  if (string() != nullptr) return QuotedForPython(*string());
  if (boolean() != nullptr) return *boolean() ? "True" : "False";
  if (integer() != nullptr) return std::to_string(*integer());
  if (real() != nullptr) return RealText(*real());
  if (const auto* items = list()) {
    return Bracketed('[', ']', items->size(), -1, 0, [&](size_t i) { return (*items)[i].Repr(); });
  }
  if (const auto* entries = dict()) {
    return Bracketed('{', '}', entries->items().size(), -1, 0, [&](size_t i) {
      const auto& [key, item] = entries->items()[i];
      return QuotedForPython(key) + ": " + item.Repr();
    });
  }
  if (function() != nullptr) return "<function " + function()->name + ">";
  return is_undefined() ? "Undefined" : "None";
}

std::string Value::ToJson(int indent) const { return JsonText(*this, indent, 0); }

std::string Value::TypeName() const {
  if (string() != nullptr) return "string";
  if (boolean() != nullptr) return "boolean";
  if (integer() != nullptr || real() != nullptr) return "number";
  if (list() != nullptr) return "list";
  if (dict() != nullptr) return "dict";
  if (function() != nullptr) return "function";
  if (is_none()) return "none";
  return undefined_name().empty() ? "undefined value" : "undefined '" + undefined_name() + "'";
}

bool Value::AsNumber(double* number) const {
  if (boolean() != nullptr) {
    *number = *boolean() ? 1 : 0;
  } else if (integer() != nullptr) {
    *number = static_cast<double>(*integer());
  } else if (real() != nullptr) {
    *number = *real();
  } else {
    return false;
  }
  return true;
}

bool Value::Equals(const Value& other) const {
  if (integer() != nullptr && other.integer() != nullptr) return *integer() == *other.integer();
  double a = 0;
  double b = 0;
  if (AsNumber(&a) && other.AsNumber(&b)) return a == b;
  if (string() != nullptr && other.string() != nullptr) return *string() == *other.string();
  if (list() != nullptr && other.list() != nullptr) {
    if (list()->size() != other.list()->size()) return false;
    for (size_t i = 0; i < list()->size(); ++i) {
      if (!(*list())[i].Equals((*other.list())[i])) return false;
    }
    return true;
  }
  if (dict() != nullptr && other.dict() != nullptr) {
    if (dict()->items().size() != other.dict()->items().size()) return false;
    for (const auto& [key, value] : dict()->items()) {
      const Value* match = other.dict()->Find(key);
      if (match == nullptr || !value.Equals(*match)) return false;
    }
    return true;
  }
  return (is_none() && other.is_none()) || (is_undefined() && other.is_undefined());
}

}  // namespace lamina::chat
