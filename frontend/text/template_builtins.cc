#include "frontend/text/template_builtins.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <unordered_map>

#include "frontend/text/template_operators.h"
#include "frontend/text/template_selection.h"
#include "frontend/text/utf8.h"

namespace lamina::chat {
namespace {

using Filter = Result<Value> (*)(const Value&, const Arguments&);
using Test = bool (*)(const Value&, const Arguments&);

// Python's str.isspace() characters.
bool IsSpace(std::string_view character) {
  static constexpr std::string_view kWide[] = {"\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81",
                                               "\xE2\x80\x82", "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86",
                                               "\xE2\x80\x87", "\xE2\x80\x88", "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8",
                                               "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};
  if (character.size() == 1)
    return character[0] == ' ' || (character[0] >= '\t' && character[0] <= '\r') || (character[0] >= 0x1C && character[0] <= 0x1F);
  return std::find(std::begin(kWide), std::end(kWide), character) != std::end(kWide);
}

std::vector<std::string_view> Characters(std::string_view text) {
  std::vector<std::string_view> characters;
  while (!text.empty()) {
    size_t length = 0;
    ClassifyUtf8(text, &length);
    characters.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return characters;
}

// Python's strip(): `chars` is a set of characters, nullptr: white space.
Value Strip(const std::string& text, const std::string* chars, bool left, bool right) {
  const std::vector<std::string_view> characters = Characters(text);
  const std::vector<std::string_view> set = chars == nullptr ? std::vector<std::string_view>() : Characters(*chars);
  const auto strips = [&](std::string_view character) {
    return chars == nullptr ? IsSpace(character) : std::find(set.begin(), set.end(), character) != set.end();
  };
  size_t begin = 0;
  size_t end = characters.size();
  while (left && begin < end && strips(characters[begin])) ++begin;
  while (right && end > begin && strips(characters[end - 1])) --end;
  std::string result;
  for (size_t i = begin; i < end; ++i) result += characters[i];
  return Value(std::move(result));
}

std::string Upper(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return text;
}

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

std::string Capitalize(const std::string& text) { return Upper(text.substr(0, 1)) + Lower(text.substr(std::min<size_t>(1, text.size()))); }

std::string Title(const std::string& text) {
  std::string result;
  bool word_begins = true;
  for (const char c : text) {
    result += word_begins ? Upper(std::string(1, c)) : Lower(std::string(1, c));
    word_begins = std::string_view("- \t\n\r\f\v({[<").find(c) != std::string_view::npos;
  }
  return result;
}

std::string Replace(const std::string& text, const std::string& from, const std::string& to) {
  if (from.empty()) return text;
  std::string result;
  size_t at = 0;
  for (size_t found = text.find(from); found != std::string::npos; found = text.find(from, at)) {
    result.append(text, at, found - at).append(to);
    at = found + from.size();
  }
  return result.append(text, at);
}

Value Split(const std::string& text, const std::string* separator, size_t max_splits) {
  List parts;
  if (separator != nullptr && !separator->empty()) {
    size_t at = 0;
    for (size_t found = text.find(*separator); found != std::string::npos && parts.size() < max_splits; found = text.find(*separator, at)) {
      parts.emplace_back(text.substr(at, found - at));
      at = found + separator->size();
    }
    parts.emplace_back(text.substr(at));
    return Value(std::move(parts));
  }
  std::string part;
  for (const std::string_view character : Characters(text)) {
    if (!IsSpace(character)) {
      part += character;
    } else if (!part.empty()) {
      parts.emplace_back(std::exchange(part, {}));
    }
  }
  if (!part.empty()) parts.emplace_back(std::move(part));
  return Value(std::move(parts));
}

Status WrongType(const Value& value, const char* expected) {
  return InvalidArgument("expected " + std::string(expected) + " but got a " + value.TypeName());
}

Result<std::string> RequiredString(const Arguments& arguments, size_t index, std::string_view name) {
  const Value* value = arguments.Get(index, name);
  if (value == nullptr) return InvalidArgument("argument '" + std::string(name) + "' is missing");
  if (value->string() == nullptr) return WrongType(*value, "a string");
  return *value->string();
}

Value Items(const Dict& dict) {
  List pairs;
  for (const auto& [key, value] : dict.items()) pairs.push_back(Value(List{Value(key), value}));
  return Value(std::move(pairs));
}

Result<Value> FilterDefault(const Value& value, const Arguments& arguments) {
  const Value* boolean = arguments.Get(1, "boolean");
  const bool replace = value.is_undefined() || (boolean != nullptr && boolean->Truthy() && !value.Truthy());
  if (!replace) return value;
  const Value* fallback = arguments.Get(0, "default_value");
  return fallback == nullptr ? Value(std::string()) : *fallback;
}

Result<Value> FilterLength(const Value& value, const Arguments&) {
  if (value.string() != nullptr) return Value(static_cast<int64_t>(CountCodePoints(*value.string())));
  if (value.list() != nullptr) return Value(static_cast<int64_t>(value.list()->size()));
  if (value.dict() != nullptr) return Value(static_cast<int64_t>(value.dict()->items().size()));
  if (value.is_undefined()) return Value(int64_t{0});
  return WrongType(value, "a string, list or dict");
}

Result<Value> FilterJoin(const Value& value, const Arguments& arguments) {
  LAMINA_ASSIGN_OR_RETURN(const List items, Iterate(value));
  const Value* separator = arguments.Get(0, "d");
  std::string joined;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0 && separator != nullptr) joined += separator->ToText();
    joined += items[i].ToText();
  }
  return Value(std::move(joined));
}

Result<Value> FilterTrim(const Value& value, const Arguments& arguments) {
  const Value* chars = arguments.Get(0, "chars");
  return Strip(value.ToText(), chars == nullptr ? nullptr : chars->string(), true, true);
}

Result<Value> FilterInt(const Value& value, const Arguments&) {
  if (value.integer() != nullptr) return value;
  if (value.boolean() != nullptr) return Value(int64_t{*value.boolean()});
  if (value.real() != nullptr && *value.real() > -9e18 && *value.real() < 9e18) return Value(static_cast<int64_t>(*value.real()));
  int64_t number = 0;
  if (value.string() != nullptr) {
    const std::string text = *Strip(*value.string(), nullptr, true, true).string();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) number = 0;
  }
  return Value(number);
}

Result<Value> FilterReplace(const Value& value, const Arguments& arguments) {
  LAMINA_ASSIGN_OR_RETURN(const std::string from, RequiredString(arguments, 0, "old"));
  LAMINA_ASSIGN_OR_RETURN(const std::string to, RequiredString(arguments, 1, "new"));
  return Value(Replace(value.ToText(), from, to));
}

Result<Value> FilterToJson(const Value& value, const Arguments& arguments) {
  const Value* indent = arguments.Get(1, "indent");
  if (value.is_undefined()) return WrongType(value, "a value");
  for (const auto& [name, setting] : arguments.named) {
    if (name != "indent" && setting.Truthy()) return Unimplemented("the argument '" + name + "' is not supported");
  }
  if (indent == nullptr || indent->integer() == nullptr) return Value(value.ToJson());
  return Value(value.ToJson(static_cast<int>(std::clamp<int64_t>(*indent->integer(), 0, 16))));
}

Result<Value> FilterItems(const Value& value, const Arguments&) {
  if (value.is_undefined()) return Value(List());
  if (value.dict() == nullptr) return WrongType(value, "a dict");
  return Items(*value.dict());
}

Result<Value> FilterReverse(const Value& value, const Arguments&) {
  LAMINA_ASSIGN_OR_RETURN(List items, Iterate(value));
  std::reverse(items.begin(), items.end());
  if (value.string() != nullptr) return FilterJoin(Value(std::move(items)), {});
  return Value(std::move(items));
}

Result<Value> FilterList(const Value& value, const Arguments&) {
  LAMINA_ASSIGN_OR_RETURN(List items, Iterate(value));
  return Value(std::move(items));
}

Result<Value> FilterFirst(const Value& value, const Arguments&) {
  LAMINA_ASSIGN_OR_RETURN(const List items, Iterate(value));
  return items.empty() ? Value() : items.front();
}

Result<Value> FilterLast(const Value& value, const Arguments&) {
  LAMINA_ASSIGN_OR_RETURN(const List items, Iterate(value));
  return items.empty() ? Value() : items.back();
}

const std::unordered_map<std::string_view, Filter>& Filters() {
  static const std::unordered_map<std::string_view, Filter> filters = {
      {"trim", FilterTrim},
      {"length", FilterLength},
      {"count", FilterLength},
      {"default", FilterDefault},
      {"d", FilterDefault},
      {"tojson", FilterToJson},
      {"join", FilterJoin},
      {"int", FilterInt},
      {"replace", FilterReplace},
      {"items", FilterItems},
      {"reverse", FilterReverse},
      {"list", FilterList},
      {"first", FilterFirst},
      {"last", FilterLast},
      {"map", FilterMap},
      {"select", FilterSelect},
      {"reject", FilterReject},
      {"selectattr", FilterSelectAttr},
      {"rejectattr", FilterRejectAttr},
      {"upper", [](const Value& v, const Arguments&) -> Result<Value> { return Value(Upper(v.ToText())); }},
      {"lower", [](const Value& v, const Arguments&) -> Result<Value> { return Value(Lower(v.ToText())); }},
      {"title", [](const Value& v, const Arguments&) -> Result<Value> { return Value(Title(v.ToText())); }},
      {"capitalize", [](const Value& v, const Arguments&) -> Result<Value> { return Value(Capitalize(v.ToText())); }},
      {"string", [](const Value& v, const Arguments&) -> Result<Value> { return Value(v.ToText()); }},
      {"safe", [](const Value& v, const Arguments&) -> Result<Value> { return v; }},
  };
  return filters;
}

const std::unordered_map<std::string_view, Test>& Tests() {
  static const auto sequence = [](const Value& v, const Arguments&) {
    return v.string() != nullptr || v.list() != nullptr || v.dict() != nullptr;
  };
  static const std::unordered_map<std::string_view, Test> tests = {
      {"defined", [](const Value& v, const Arguments&) { return !v.is_undefined(); }},
      {"undefined", [](const Value& v, const Arguments&) { return v.is_undefined(); }},
      {"none", [](const Value& v, const Arguments&) { return v.is_none(); }},
      {"string", [](const Value& v, const Arguments&) { return v.string() != nullptr; }},
      {"mapping", [](const Value& v, const Arguments&) { return v.dict() != nullptr; }},
      {"boolean", [](const Value& v, const Arguments&) { return v.boolean() != nullptr; }},
      {"integer", [](const Value& v, const Arguments&) { return v.integer() != nullptr; }},
      {"float", [](const Value& v, const Arguments&) { return v.real() != nullptr; }},
      {"number", [](const Value& v, const Arguments&) { return v.integer() != nullptr || v.real() != nullptr || v.boolean() != nullptr; }},
      {"true", [](const Value& v, const Arguments&) { return v.boolean() != nullptr && *v.boolean(); }},
      {"false", [](const Value& v, const Arguments&) { return v.boolean() != nullptr && !*v.boolean(); }},
      {"odd", [](const Value& v, const Arguments&) { return v.integer() != nullptr && *v.integer() % 2 != 0; }},
      {"even", [](const Value& v, const Arguments&) { return v.integer() != nullptr && *v.integer() % 2 == 0; }},
      {"iterable", sequence},
      {"sequence", sequence},
      {"callable", [](const Value& v, const Arguments&) { return v.function() != nullptr; }},
      {"lower", [](const Value& v, const Arguments&) { return v.ToText() == Lower(v.ToText()) && Upper(v.ToText()) != Lower(v.ToText()); }},
      {"upper", [](const Value& v, const Arguments&) { return v.ToText() == Upper(v.ToText()) && Upper(v.ToText()) != Lower(v.ToText()); }},
  };
  return tests;
}

// Tests that are operators: value is lt(other).
std::string_view OperatorOf(std::string_view test) {
  static const std::unordered_map<std::string_view, std::string_view> operators = {
      {"eq", "=="}, {"equalto", "=="},    {"ne", "!="}, {"lt", "<"},  {"lessthan", "<"},
      {"gt", ">"},  {"greaterthan", ">"}, {"le", "<="}, {"ge", ">="}, {"in", "in"}};
  const auto found = operators.find(test);
  return found == operators.end() ? std::string_view() : found->second;
}

Result<Value> StringMethod(const std::string& text, const std::string& name, const Arguments& arguments) {
  const Value* first = arguments.Get(0, "");
  const std::string* first_text = first == nullptr ? nullptr : first->string();
  if (name == "strip" || name == "lstrip" || name == "rstrip") return Strip(text, first_text, name != "rstrip", name != "lstrip");
  if (name == "upper") return Value(Upper(text));
  if (name == "lower") return Value(Lower(text));
  if (name == "capitalize") return Value(Capitalize(text));
  if (name == "title") return Value(Title(text));
  if (name == "split") {
    const Value* limit = arguments.Get(1, "maxsplit");
    const bool limited = limit != nullptr && limit->integer() != nullptr && *limit->integer() >= 0;
    if (limited && first_text == nullptr) return Unimplemented("the string method .split() with a limit needs a separator");
    return Split(text, first_text, limited ? static_cast<size_t>(*limit->integer()) : SIZE_MAX);
  }
  if (name == "replace") return FilterReplace(Value(text), arguments);
  if (name == "startswith" || name == "endswith") {
    LAMINA_ASSIGN_OR_RETURN(const std::string part, RequiredString(arguments, 0, "prefix"));
    return Value(name == "startswith" ? text.starts_with(part) : text.ends_with(part));
  }
  if (name == "join" && first != nullptr) return FilterJoin(*first, Arguments{{Value(text)}, {}});
  return Unimplemented("the string method ." + name + "() is not supported");
}

Result<Value> DictMethod(const Dict& dict, const std::string& name, const Arguments& arguments) {
  if (name == "items") return Items(dict);
  if (name == "get") {
    LAMINA_ASSIGN_OR_RETURN(const std::string key, RequiredString(arguments, 0, "key"));
    const Value* fallback = arguments.Get(1, "default");
    const Value* found = dict.Find(key);
    if (found != nullptr) return *found;
    return fallback == nullptr ? Value::MakeNone() : *fallback;
  }
  if (name == "keys" || name == "values") {
    List list;
    for (const auto& [key, value] : dict.items()) list.push_back(name == "keys" ? Value(key) : value);
    return Value(std::move(list));
  }
  return Unimplemented("the dict method ." + name + "() is not supported");
}

}  // namespace

const Value* Arguments::Get(size_t index, std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  const auto found = std::find_if(named.begin(), named.end(), [&](const auto& argument) { return argument.first == name; });
  return found == named.end() ? nullptr : &found->second;
}

Result<Value> ApplyFilter(const std::string& name, const Value& value, const Arguments& arguments) {
  const auto found = Filters().find(name);
  if (found == Filters().end()) return Unimplemented("the filter '" + name + "' is not supported");
  Result<Value> result = found->second(value, arguments);
  if (!result.ok()) return result.status().WithContext("filter '" + name + "'");
  return result;
}

Result<bool> ApplyTest(const std::string& name, const Value& value, const Arguments& arguments) {
  if (const std::string_view op = OperatorOf(name); !op.empty()) {
    const Value* other = arguments.Get(0, "other");
    if (other == nullptr) return InvalidArgument("the test 'is " + name + "' takes an argument");
    LAMINA_ASSIGN_OR_RETURN(const Value result, ApplyOperator(op, value, *other));
    return result.Truthy();
  }
  const auto found = Tests().find(name);
  if (found == Tests().end()) return Unimplemented("the test 'is " + name + "' is not supported");
  return found->second(value, arguments);
}

Result<Value> CallMethod(const Value& object, const std::string& name, const Arguments& arguments) {
  if (object.string() != nullptr) return StringMethod(*object.string(), name, arguments);
  if (object.dict() != nullptr) return DictMethod(*object.dict(), name, arguments);
  if (object.is_undefined()) return InvalidArgument("'" + object.undefined_name() + "' is undefined");
  return Unimplemented("the method ." + name + "() of a " + object.TypeName() + " is not supported");
}

Result<List> Iterate(const Value& value) {
  if (value.list() != nullptr) return *value.list();
  List items;
  if (value.is_undefined()) return items;
  if (value.string() != nullptr) {
    for (const std::string_view character : Characters(*value.string())) items.emplace_back(std::string(character));
    return items;
  }
  if (value.dict() != nullptr) {
    for (const auto& [key, item] : value.dict()->items()) items.emplace_back(key);
    return items;
  }
  return InvalidArgument("a " + value.TypeName() + " cannot be iterated over");
}

}  // namespace lamina::chat
