#include "text/template_builtins.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "text/template_operators.h"
#include "text/template_selection.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace lamina::chat {
namespace {

using Filter = Result<Value> (*)(const Value&, const Arguments&, Meter&);
using Test = bool (*)(const Value&, const Arguments&);

constexpr size_t kCharactersPerStep = 4;  // that are looked at one by one
constexpr size_t kMaxShownBytes = 200;    // that a message repeats

// The last character of a text that is not empty.
std::string_view LastCharacter(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return text.substr(begin);
}

std::string_view FirstCharacter(std::string_view text) {
  size_t length = 0;
  ClassifyUtf8(text, &length);
  return text.substr(0, length);
}

struct Sides {
  bool left = true;
  bool right = true;
};

// Python's strip(): `chars` is a set of characters, nullptr: white space.
Result<Value> Strip(std::string_view text, const std::string* chars, Sides sides, Meter& meter) {
  LAMINA_RETURN_IF_ERROR(meter.Text(text.size()));
  Status status;
  size_t num_asked = 0;
  const auto strips = [&](std::string_view character) {
    status = meter.Steps((chars == nullptr ? 0 : chars->size() / Meter::kBytesPerStep) +
                         (++num_asked % kCharactersPerStep == 0 ? 1 : 0));
    if (!status.ok()) return false;
    return chars == nullptr ? StartsWithPythonSpace(character)
                            : chars->find(character) != std::string::npos;
  };
  while (sides.left && !text.empty() && strips(FirstCharacter(text)))
    text.remove_prefix(FirstCharacter(text).size());
  while (sides.right && !text.empty() && strips(LastCharacter(text)))
    text.remove_suffix(LastCharacter(text).size());
  LAMINA_RETURN_IF_ERROR(status);
  return Value(std::string(text));
}

std::string Upper(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return text;
}

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

std::string Capitalize(const std::string& text) {
  return Upper(text.substr(0, 1)) + Lower(text.substr(std::min<size_t>(1, text.size())));
}

std::string Title(const std::string& text) {
  std::string result;
  bool word_begins = true;
  for (const char c : text) {
    const bool is_lower = c >= 'a' && c <= 'z', is_upper = c >= 'A' && c <= 'Z';
    result += static_cast<char>(word_begins && is_lower    ? c - 'a' + 'A'
                                : !word_begins && is_upper ? c - 'A' + 'a'
                                                           : c);
    word_begins = std::string_view("- \t\n\r\f\v({[<").find(c) != std::string_view::npos;
  }
  return result;
}

Result<Value> Replace(const std::string& text, const std::string& from, const std::string& to,
                      Meter& meter) {
  LAMINA_RETURN_IF_ERROR(meter.Text(text.size()));
  if (from.empty()) return Value(text);
  std::string result;
  size_t at = 0;
  for (size_t found = FindText(text, from, 0); found != std::string::npos;
       found = FindText(text, from, at)) {
    LAMINA_RETURN_IF_ERROR(meter.Steps(1 + to.size() / Meter::kBytesPerStep));
    result.append(text, at, found - at).append(to);
    LAMINA_RETURN_IF_ERROR(result.size() > text.size() ? meter.TextFits(result.size())
                                                       : OkStatus());
    at = found + from.size();
  }
  return Value(std::move(result.append(text, at)));
}

Result<Value> Split(std::string_view text, const std::string* separator, size_t max_splits,
                    Meter& meter) {
  LAMINA_RETURN_IF_ERROR(meter.Text(text.size()));
  List parts;
  if (separator != nullptr && !separator->empty()) {
    size_t at = 0;
    for (size_t found = FindText(text, *separator, 0);
         found != std::string::npos && parts.size() < max_splits;
         found = FindText(text, *separator, at)) {
      LAMINA_RETURN_IF_ERROR(meter.Steps(1));
      parts.emplace_back(std::string(text.substr(at, found - at)));
      at = found + separator->size();
    }
    parts.emplace_back(std::string(text.substr(at)));
    return Value(std::move(parts));
  }
  LAMINA_RETURN_IF_ERROR(meter.Walk(text.size()));
  std::string part;
  for (; !text.empty(); text.remove_prefix(FirstCharacter(text).size())) {
    const std::string_view character = FirstCharacter(text);
    if (!StartsWithPythonSpace(character)) {
      part += character;
    } else if (!part.empty()) {
      LAMINA_RETURN_IF_ERROR(meter.Steps(1));
      parts.emplace_back(std::exchange(part, {}));
    }
  }
  if (!part.empty()) parts.emplace_back(std::move(part));
  return Value(std::move(parts));
}

Status WrongType(const Value& value, const char* expected) {
  return InvalidArgument("expected " + std::string(expected) + " but got a " + value.TypeName());
}

// Borrows the arguments.
Result<const std::string*> RequiredString(const Arguments& arguments, size_t index,
                                          std::string_view name) {
  const Value* value = arguments.Get(index, name);
  if (value == nullptr) return InvalidArgument("argument '" + std::string(name) + "' is missing");
  if (value->string() == nullptr) return WrongType(*value, "a string");
  return value->string();
}

Result<Value> Items(const Dict& dict, Meter& meter) {
  LAMINA_RETURN_IF_ERROR(meter.CopyKeys(dict));
  List pairs;
  pairs.reserve(dict.items().size());
  for (const auto& [key, value] : dict.items()) pairs.push_back(Value(List{Value(key), value}));
  return Value(std::move(pairs));
}

Result<Value> FilterDefault(const Value& value, const Arguments& arguments, Meter&) {
  const Value* boolean = arguments.Get(1, "boolean");
  const bool replace =
      value.is_undefined() || (boolean != nullptr && boolean->Truthy() && !value.Truthy());
  if (!replace) return value;
  const Value* fallback = arguments.Get(0, "default_value");
  return fallback == nullptr ? Value(std::string()) : *fallback;
}

Result<Value> FilterLength(const Value& value, const Arguments&, Meter& meter) {
  if (value.string() != nullptr) {
    LAMINA_RETURN_IF_ERROR(meter.Text(value.string()->size()));
    return Value(static_cast<int64_t>(CountCodePoints(*value.string())));
  }
  if (value.list() != nullptr) return Value(static_cast<int64_t>(value.list()->size()));
  if (value.dict() != nullptr) return Value(static_cast<int64_t>(value.dict()->items().size()));
  if (value.is_undefined()) return Value(int64_t{0});
  return WrongType(value, "a string, list or dict");
}

Result<Value> FilterJoin(const Value& value, const Arguments& arguments, Meter& meter) {
  LAMINA_ASSIGN_OR_RETURN(const List items, Iterate(value, meter));
  LAMINA_RETURN_IF_ERROR(meter.Steps(items.size()));
  const Value* separator = arguments.Get(0, "d");
  std::string joined;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0 && separator != nullptr) {
      LAMINA_ASSIGN_OR_RETURN(const std::string text, meter.Print(*separator));
      joined += text;
    }
    LAMINA_ASSIGN_OR_RETURN(const std::string text, meter.Print(items[i]));
    joined += text;
    LAMINA_RETURN_IF_ERROR(meter.TextFits(joined.size()));
  }
  return Value(std::move(joined));
}

Result<Value> FilterTrim(const Value& value, const Arguments& arguments, Meter& meter) {
  const Value* chars = arguments.Get(0, "chars");
  LAMINA_ASSIGN_OR_RETURN(const std::string text, meter.Print(value));
  return Strip(text, chars == nullptr ? nullptr : chars->string(), {}, meter);
}

Result<Value> FilterInt(const Value& value, const Arguments&, Meter& meter) {
  if (value.integer() != nullptr) return value;
  if (value.boolean() != nullptr) return Value(int64_t{*value.boolean()});
  if (value.real() != nullptr && *value.real() > -9e18 && *value.real() < 9e18)
    return Value(static_cast<int64_t>(*value.real()));
  int64_t number = 0;
  if (value.string() != nullptr) {
    LAMINA_ASSIGN_OR_RETURN(const Value stripped, Strip(*value.string(), nullptr, {}, meter));
    const std::string& text = *stripped.string();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) number = 0;
  }
  return Value(number);
}

Result<Value> FilterReplace(const Value& value, const Arguments& arguments, Meter& meter) {
  LAMINA_ASSIGN_OR_RETURN(const std::string* from, RequiredString(arguments, 0, "old"));
  LAMINA_ASSIGN_OR_RETURN(const std::string* to, RequiredString(arguments, 1, "new"));
  LAMINA_RETURN_IF_ERROR(meter.Text(from->size()));
  LAMINA_ASSIGN_OR_RETURN(const std::string text, meter.Print(value));
  return Replace(text, *from, *to, meter);
}

Result<Value> FilterToJson(const Value& value, const Arguments& arguments, Meter& meter) {
  const Value* indent = arguments.Get(1, "indent");
  if (value.is_undefined()) return WrongType(value, "a value");
  for (const auto& [name, setting] : arguments.named) {
    if (name != "indent" && setting.Truthy())
      return Unimplemented("the argument '" + name + "' is not supported");
  }
  const bool indents = indent != nullptr && indent->integer() != nullptr;
  LAMINA_ASSIGN_OR_RETURN(
      std::string json,
      meter.PrintJson(
          value, indents ? static_cast<int>(std::clamp<int64_t>(*indent->integer(), 0, 16)) : -1));
  return Value(std::move(json));
}

Result<Value> FilterItems(const Value& value, const Arguments&, Meter& meter) {
  if (value.is_undefined()) return Value(List());
  if (value.dict() == nullptr) return WrongType(value, "a dict");
  return Items(*value.dict(), meter);
}

Result<Value> FilterReverse(const Value& value, const Arguments&, Meter& meter) {
  LAMINA_ASSIGN_OR_RETURN(List items, Iterate(value, meter));
  std::reverse(items.begin(), items.end());
  if (value.string() != nullptr) return FilterJoin(Value(std::move(items)), {}, meter);
  return Value(std::move(items));
}

Result<Value> FilterList(const Value& value, const Arguments&, Meter& meter) {
  LAMINA_ASSIGN_OR_RETURN(List items, Iterate(value, meter));
  return Value(std::move(items));
}

Result<Value> FilterFirst(const Value& value, const Arguments&, Meter& meter) {
  if (value.list() != nullptr) return value.list()->empty() ? Value() : value.list()->front();
  LAMINA_ASSIGN_OR_RETURN(const List items, Iterate(value, meter));
  return items.empty() ? Value() : items.front();
}

Result<Value> FilterLast(const Value& value, const Arguments&, Meter& meter) {
  if (value.list() != nullptr) return value.list()->empty() ? Value() : value.list()->back();
  LAMINA_ASSIGN_OR_RETURN(const List items, Iterate(value, meter));
  return items.empty() ? Value() : items.back();
}

Result<Value> FilterString(const Value& value, const Arguments&, Meter& meter) {
  if (value.string() != nullptr) return value;
  LAMINA_ASSIGN_OR_RETURN(std::string text, meter.Print(value));
  return Value(std::move(text));
}

template <auto kChange>
Result<Value> FilterLetters(const Value& value, const Arguments&, Meter& meter) {
  LAMINA_ASSIGN_OR_RETURN(const std::string text, meter.Print(value));
  return Value(kChange(text));
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
      {"upper", FilterLetters<Upper>},
      {"lower", FilterLetters<Lower>},
      {"title", FilterLetters<Title>},
      {"capitalize", FilterLetters<Capitalize>},
      {"string", FilterString},
      {"safe", [](const Value& v, const Arguments&, Meter&) -> Result<Value> { return v; }},
  };
  return filters;
}

bool IsCased(const std::string& text) { return Upper(text) != Lower(text); }

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
      {"number",
       [](const Value& v, const Arguments&) {
         return v.integer() != nullptr || v.real() != nullptr || v.boolean() != nullptr;
       }},
      {"true",
       [](const Value& v, const Arguments&) { return v.boolean() != nullptr && *v.boolean(); }},
      {"false",
       [](const Value& v, const Arguments&) { return v.boolean() != nullptr && !*v.boolean(); }},
      {"odd", [](const Value& v,
                 const Arguments&) { return v.integer() != nullptr && *v.integer() % 2 != 0; }},
      {"even", [](const Value& v,
                  const Arguments&) { return v.integer() != nullptr && *v.integer() % 2 == 0; }},
      {"iterable", sequence},
      {"sequence", sequence},
      {"callable", [](const Value& v, const Arguments&) { return v.function() != nullptr; }},
      {"lower",
       [](const Value& v, const Arguments&) {
         return v.string() != nullptr && IsCased(*v.string()) && *v.string() == Lower(*v.string());
       }},
      {"upper",
       [](const Value& v, const Arguments&) {
         return v.string() != nullptr && IsCased(*v.string()) && *v.string() == Upper(*v.string());
       }},
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

Result<Value> StringMethod(const std::string& text, const std::string& name,
                           const Arguments& arguments, Meter& meter) {
  LAMINA_RETURN_IF_ERROR(meter.Text(text.size()));
  const Value* first = arguments.Get(0, "");
  const std::string* first_text = first == nullptr ? nullptr : first->string();
  if (name == "strip" || name == "lstrip" || name == "rstrip")
    return Strip(text, first_text, {name != "rstrip", name != "lstrip"}, meter);
  if (name == "upper") return Value(Upper(text));
  if (name == "lower") return Value(Lower(text));
  if (name == "capitalize") return Value(Capitalize(text));
  if (name == "title") return Value(Title(text));
  if (name == "split") {
    const Value* limit = arguments.Get(1, "maxsplit");
    const bool limited = limit != nullptr && limit->integer() != nullptr && *limit->integer() >= 0;
    if (limited && first_text == nullptr)
      return Unimplemented("the string method .split() with a limit needs a separator");
    return Split(text, first_text, limited ? static_cast<size_t>(*limit->integer()) : SIZE_MAX,
                 meter);
  }
  if (name == "replace") return FilterReplace(Value(text), arguments, meter);
  if (name == "startswith" || name == "endswith") {
    LAMINA_ASSIGN_OR_RETURN(const std::string* part, RequiredString(arguments, 0, "prefix"));
    return Value(name == "startswith" ? text.starts_with(*part) : text.ends_with(*part));
  }
  if (name == "join" && first != nullptr)
    return FilterJoin(*first, Arguments{{Value(text)}, {}}, meter);
  return Unimplemented("the string method ." + name + "() is not supported");
}

Result<Value> DictMethod(const Dict& dict, const std::string& name, const Arguments& arguments,
                         Meter& meter) {
  if (name == "items") return Items(dict, meter);
  if (name == "get") {
    LAMINA_ASSIGN_OR_RETURN(const std::string* key, RequiredString(arguments, 0, "key"));
    const Value* fallback = arguments.Get(1, "default");
    LAMINA_ASSIGN_OR_RETURN(const Value* found, meter.Find(dict, *key));
    if (found != nullptr) return *found;
    return fallback == nullptr ? Value::MakeNone() : *fallback;
  }
  if (name == "keys" || name == "values") {
    LAMINA_RETURN_IF_ERROR(name == "keys" ? meter.CopyKeys(dict)
                                          : meter.Entries(dict.items().size()));
    List list;
    list.reserve(dict.items().size());
    for (const auto& [key, value] : dict.items())
      list.push_back(name == "keys" ? Value(key) : value);
    return Value(std::move(list));
  }
  return Unimplemented("the dict method ." + name + "() is not supported");
}

}  // namespace

const Value* Arguments::Get(size_t index, std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  const auto found = std::find_if(named.begin(), named.end(),
                                  [&](const auto& argument) { return argument.first == name; });
  return found == named.end() ? nullptr : &found->second;
}

Result<Value> ApplyFilter(const std::string& name, const Value& value, const Arguments& arguments,
                          Meter& meter) {
  const auto found = Filters().find(name);
  if (found == Filters().end())
    return Unimplemented("the filter '" + Shortened(name, kMaxShownBytes) + "' is not supported");
  Result<Value> result = found->second(value, arguments, meter);
  if (!result.ok()) return result.status().WithContext("filter '" + name + "'");
  return result;
}

Result<bool> ApplyTest(const std::string& name, const Value& value, const Arguments& arguments,
                       Meter& meter) {
  if (const std::string_view op = OperatorOf(name); !op.empty()) {
    const Value* other = arguments.Get(0, "other");
    if (other == nullptr) return InvalidArgument("the test 'is " + name + "' takes an argument");
    LAMINA_ASSIGN_OR_RETURN(const Value result, ApplyOperator(op, value, *other, meter));
    return result.Truthy();
  }
  // "is lower" reads it.
  LAMINA_RETURN_IF_ERROR(meter.Text(value.string() != nullptr ? value.string()->size() : 0));
  const auto found = Tests().find(name);
  if (found == Tests().end())
    return Unimplemented("the test 'is " + Shortened(name, kMaxShownBytes) + "' is not supported");
  return found->second(value, arguments);
}

Result<Value> CallMethod(const Value& object, const std::string& name, const Arguments& arguments,
                         Meter& meter) {
  if (object.string() != nullptr) return StringMethod(*object.string(), name, arguments, meter);
  if (object.dict() != nullptr) return DictMethod(*object.dict(), name, arguments, meter);
  if (object.is_undefined())
    return InvalidArgument("'" + object.undefined_name() + "' is undefined");
  return Unimplemented("the method ." + name + "() of a " + object.TypeName() +
                       " is not supported");
}

Result<List> Iterate(const Value& value, Meter& meter) {
  if (value.list() != nullptr) {
    LAMINA_RETURN_IF_ERROR(meter.Entries(value.list()->size()));
    return *value.list();
  }
  List items;
  if (value.is_undefined()) return items;
  if (value.string() != nullptr) {
    LAMINA_RETURN_IF_ERROR(meter.Steps(value.string()->size()));
    for (std::string_view rest = *value.string(); !rest.empty();
         rest.remove_prefix(FirstCharacter(rest).size()))
      items.emplace_back(std::string(FirstCharacter(rest)));
    return items;
  }
  if (value.dict() != nullptr) {
    LAMINA_RETURN_IF_ERROR(meter.CopyKeys(*value.dict()));
    items.reserve(value.dict()->items().size());
    for (const auto& [key, item] : value.dict()->items()) items.emplace_back(key);
    return items;
  }
  return InvalidArgument("a " + value.TypeName() + " cannot be iterated over");
}

}  // namespace lamina::chat
