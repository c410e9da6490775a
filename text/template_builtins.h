// Filters, tests and methods that chat templates use.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/template_meter.h"
#include "text/template_value.h"

namespace lamina::chat {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // Argument number `index`, or the one called `name`; nullptr: not given.
  const Value* Get(size_t index, std::string_view name) const;
};

// Each returns kUnimplemented for a name it does not know, kInvalidArgument for values it cannot
// work on, kOutOfSpace for too much work. upper, lower, title and capitalize change ASCII letters.

// The filter in `value | name(arguments)`.
Result<Value> ApplyFilter(const std::string& name, const Value& value, const Arguments& arguments,
                          Meter& meter);
// The test in `value is name(arguments)`.
Result<bool> ApplyTest(const std::string& name, const Value& value, const Arguments& arguments,
                       Meter& meter);
// The method in `object.name(arguments)`.
Result<Value> CallMethod(const Value& object, const std::string& name, const Arguments& arguments,
                         Meter& meter);

// Characters of a string, entries of a list, keys of a dict; nothing for an undefined value.
// kInvalidArgument: cannot be iterated.
Result<List> Iterate(const Value& value, Meter& meter);

}  // namespace lamina::chat
