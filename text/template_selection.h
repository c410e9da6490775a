// Filters that apply a test or a filter to each entry of a list.
#pragma once

#include "base/status.h"
#include "text/template_builtins.h"
#include "text/template_value.h"

namespace lamina::chat {

// Each returns the codes of ApplyFilter, and those of the filter or test that is applied.

// `value | select("test", ...)`: the entries that pass the test; without one, those that are true.
Result<Value> FilterSelect(const Value& value, const Arguments& arguments, Meter& meter);
// The entries that FilterSelect leaves out.
Result<Value> FilterReject(const Value& value, const Arguments& arguments, Meter& meter);
// `value | selectattr("name", "test", ...)`: the entries whose attribute passes the test, and the
// others.
Result<Value> FilterSelectAttr(const Value& value, const Arguments& arguments, Meter& meter);
Result<Value> FilterRejectAttr(const Value& value, const Arguments& arguments, Meter& meter);
// `value | map("filter", ...)` or `value | map(attribute="name")`.
Result<Value> FilterMap(const Value& value, const Arguments& arguments, Meter& meter);

}  // namespace lamina::chat
