#include "text/template_value.h"

#include <algorithm>

namespace lamina::chat {
namespace {

std::string RealText(double value) { return nlohmann::json(value).dump(); }

std::string QuotedForPython(const std::string& text) {
  const char quote =
      text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
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
// `brackets`: "[]" or "{}".
template <typename Write>
std::string Bracketed(std::string_view brackets, size_t count, int indent, int depth, Write write) {
  if (count == 0) return std::string(brackets);
  const auto line_break = [&](int level) {
    return "\n" + std::string(static_cast<size_t>(indent) * static_cast<size_t>(level), ' ');
  };
  std::string text(1, brackets.front());
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) text += indent < 0 ? ", " : ",";
    if (indent >= 0) text += line_break(depth + 1);
    text += write(i);
  }
  if (indent >= 0) text += line_break(depth);
  return text + brackets.back();
}

std::string JsonText(const Value& value, int indent, int depth) {
  if (const auto* items = value.list()) {
    return Bracketed("[]", items->size(), indent, depth,
                     [&](size_t i) { return JsonText((*items)[i], indent, depth + 1); });
  }
  if (const auto* dict = value.dict()) {
    return Bracketed("{}", dict->items().size(), indent, depth, [&](size_t i) {
      const auto& [key, item] = dict->items()[i];
      return QuotedForJson(key) + ": " + JsonText(item, indent, depth + 1);
    });
  }
  if (value.string() != nullptr) return QuotedForJson(*value.string());
  if (value.boolean() != nullptr) return *value.boolean() ? "true" : "false";
  if (value.is_none() || value.is_undefined()) return "null";
  return value.ToText();
}

constexpr size_t kScalarBytes = 8;
constexpr size_t kPunctuationBytes = 4;         // of an entry
constexpr size_t kMaxTextBytes = SIZE_MAX / 4;  // what sums end at

void Count(const Value& entry, size_t key_bytes, size_t& text_bytes, int& depth) {
  text_bytes =
      std::min(kMaxTextBytes, text_bytes + key_bytes + kPunctuationBytes + entry.text_bytes());
  depth = std::max(depth, entry.depth() + 1);
}

void Count(const Dict& dict, size_t& text_bytes, int& depth) {
  text_bytes = kPunctuationBytes;
  depth = 1;
  for (const auto& [key, value] : dict.items()) Count(value, key.size(), text_bytes, depth);
}

// Its entries in the order of their keys.
std::vector<const std::pair<std::string, Value>*> Sorted(const Dict& dict) {
  std::vector<const std::pair<std::string, Value>*> sorted;
  for (const auto& entry : dict.items()) sorted.push_back(&entry);
  std::ranges::sort(sorted, {},
                    [](const auto* entry) -> const std::string& { return entry->first; });
  return sorted;
}

}  // namespace

Value::Value(List value) {
  size_t text_bytes = kPunctuationBytes;
  int depth = 1;
  for (const Value& entry : value) Count(entry, 0, text_bytes, depth);
  data_ = std::make_shared<Sized<List>>(Sized<List>{std::move(value), text_bytes, depth});
}

Value::Value(Dict value) {
  size_t text_bytes = 0;
  int depth = 0;
  Count(value, text_bytes, depth);
  data_ = std::make_shared<Sized<Dict>>(Sized<Dict>{std::move(value), text_bytes, depth});
}

void Value::Extend(const List& entries) {
  auto& sized = std::get<std::shared_ptr<Sized<List>>>(data_);
  if (sized.use_count() > 1) {
    auto own = std::make_shared<Sized<List>>();
    own->value.reserve(sized->value.size() + entries.size());
    own->value = sized->value;
    own->text_bytes = sized->text_bytes;
    own->depth = sized->depth;
    sized = std::move(own);
  }
  for (const Value& entry : entries) {
    Count(entry, 0, sized->text_bytes, sized->depth);
    sized->value.push_back(entry);
  }
}

size_t Value::text_bytes() const {
  if (string() != nullptr) return string()->size();
  if (const auto* sized = Pointee<Sized<List>>()) return sized->text_bytes;
  const auto* sized = Pointee<Sized<Dict>>();
  if (sized == nullptr) return kScalarBytes;
  size_t text_bytes = sized->text_bytes;
  int depth = sized->depth;
  if (sized->value.is_namespace) Count(sized->value, text_bytes, depth);
  return text_bytes;
}

int Value::depth() const {
  if (const auto* sized = Pointee<Sized<List>>()) return sized->depth;
  const auto* sized = Pointee<Sized<Dict>>();
  if (sized == nullptr) return 0;
  size_t text_bytes = sized->text_bytes;
  int depth = sized->depth;
  if (sized->value.is_namespace) Count(sized->value, text_bytes, depth);
  return depth;
}

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

void Dict::Append(std::string key, Value value) {
  items_.emplace_back(std::move(key), std::move(value));
}

Value Value::FromJson(const nlohmann::ordered_json& json) {
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean: return Value(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer:
    case nlohmann::ordered_json::value_t::number_unsigned: return Value(json.get<int64_t>());
    case nlohmann::ordered_json::value_t::number_float: return Value(json.get<double>());
    case nlohmann::ordered_json::value_t::string: return Value(json.get<std::string>());
    case nlohmann::ordered_json::value_t::array: {
      List list;
      for (const auto& item : json) list.push_back(FromJson(item));
      return Value(std::move(list));
    }
    case nlohmann::ordered_json::value_t::object: {
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
    return Bracketed("[]", items->size(), -1, 0, [&](size_t i) { return (*items)[i].Repr(); });
  }
  if (const auto* entries = dict()) {
    return Bracketed("{}", entries->items().size(), -1, 0, [&](size_t i) {
      const auto& [key, item] = entries->items()[i];
      return QuotedForPython(key) + ": " + item.Repr();
    });
  }
  if (function() != nullptr) return "<function " + function()->name + ">";
  return is_undefined() ? "Undefined" : "None";
}

std::string Value::ToJson(int indent) const { return JsonText(*this, indent, 0); }

const std::string& Value::undefined_name() const {
  static const std::string none;
  const auto& name = std::get<Undefined>(data_).name;
  return name == nullptr ? none : *name;
}

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
    const auto ours = Sorted(*dict());
    const auto theirs = Sorted(*other.dict());
    for (size_t i = 0; i < ours.size(); ++i) {
      if (ours[i]->first != theirs[i]->first || !ours[i]->second.Equals(theirs[i]->second))
        return false;
    }
    return true;
  }
  return (is_none() && other.is_none()) || (is_undefined() && other.is_undefined());
}

}  // namespace lamina::chat
