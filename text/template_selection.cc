#include "text/template_selection.h"

#include <string>
#include <utility>

namespace lamina::chat {
namespace {

// "a.b" of an entry, the entry itself for ""; undefined if it has none.
Result<Value> Attribute(const Value& entry, std::string_view path, Meter& meter) {
  LAMINA_RETURN_IF_ERROR(meter.Text(path.size()));
  const Value* found = &entry;
  while (!path.empty()) {
    const size_t dot = path.find('.');
    const std::string_view name = path.substr(0, dot);
    path.remove_prefix(dot == std::string_view::npos ? path.size() : dot + 1);
    const Value* inner = nullptr;
    if (found->dict() != nullptr) {
      LAMINA_ASSIGN_OR_RETURN(inner, meter.Find(*found->dict(), name));
    }
    if (inner == nullptr) return Value::MakeUndefined(name);
    found = inner;
  }
  return *found;
}

Result<std::string> Name(const Arguments& arguments, size_t index) {
  if (index >= arguments.positional.size()) return InvalidArgument("an argument is missing");
  if (arguments.positional[index].string() == nullptr)
    return InvalidArgument("expected a name but got a " + arguments.positional[index].TypeName());
  return *arguments.positional[index].string();
}

// What stands behind the first `count` arguments.
Arguments Behind(const Arguments& arguments, size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

struct Selection {
  bool by_attribute = false;
  bool wanted = true;
};

Result<Value> Select(const Value& value, const Arguments& arguments, Selection selection,
                     Meter& meter) {
  LAMINA_ASSIGN_OR_RETURN(List items, Iterate(value, meter));
  std::string path, test;
  size_t num_names = 0;
  if (selection.by_attribute) {
    LAMINA_ASSIGN_OR_RETURN(path, Name(arguments, num_names++));
  }
  if (arguments.positional.size() > num_names) {
    LAMINA_ASSIGN_OR_RETURN(test, Name(arguments, num_names++));
  }
  const Arguments rest = Behind(arguments, num_names);
  List selected;
  for (Value& item : items) {
    LAMINA_RETURN_IF_ERROR(meter.Steps(1));
    LAMINA_ASSIGN_OR_RETURN(const Value tested, Attribute(item, path, meter));
    Result<bool> result =
        test.empty() ? Result<bool>(tested.Truthy()) : ApplyTest(test, tested, rest, meter);
    if (!result.ok()) return result.status();
    if (*result == selection.wanted) selected.push_back(std::move(item));
  }
  return Value(std::move(selected));
}

}  // namespace

Result<Value> FilterSelect(const Value& value, const Arguments& arguments, Meter& meter) {
  return Select(value, arguments, {false, true}, meter);
}
Result<Value> FilterReject(const Value& value, const Arguments& arguments, Meter& meter) {
  return Select(value, arguments, {false, false}, meter);
}
Result<Value> FilterSelectAttr(const Value& value, const Arguments& arguments, Meter& meter) {
  return Select(value, arguments, {true, true}, meter);
}
Result<Value> FilterRejectAttr(const Value& value, const Arguments& arguments, Meter& meter) {
  return Select(value, arguments, {true, false}, meter);
}

Result<Value> FilterMap(const Value& value, const Arguments& arguments, Meter& meter) {
  LAMINA_ASSIGN_OR_RETURN(List items, Iterate(value, meter));
  LAMINA_RETURN_IF_ERROR(meter.Steps(items.size()));
  if (!arguments.positional.empty()) {
    LAMINA_ASSIGN_OR_RETURN(const std::string filter, Name(arguments, 0));
    // Each would be a call within the other's.
    if (filter == "map") return InvalidArgument("map() cannot apply map()");
    const Arguments rest = Behind(arguments, 1);
    for (Value& item : items) {
      LAMINA_ASSIGN_OR_RETURN(item, ApplyFilter(filter, item, rest, meter));
    }
    return Value(std::move(items));
  }
  const Value* path = arguments.Get(0, "attribute");
  const Value* fallback = arguments.Get(1, "default");
  if (path == nullptr || path->string() == nullptr)
    return InvalidArgument("map() takes a filter's name or attribute=NAME");
  for (Value& item : items) {
    LAMINA_ASSIGN_OR_RETURN(item, Attribute(item, *path->string(), meter));
    if (item.is_undefined() && fallback != nullptr) item = *fallback;
  }
  return Value(std::move(items));
}

}  // namespace lamina::chat
