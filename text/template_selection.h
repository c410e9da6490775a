// Filters that apply a test or a filter to each entry of a list.
#pragma once

#include "base/status.h"
#include "text/template_builtins.h"
#include "text/template_value.h"

namespace lamina::chat {

// Errors as ApplyFilter, with those of what is applied.
Result<Value> FilterSelect(const Value& value, const Arguments& arguments,
                           // Value | select("test", ...); without a test: what is true.
                           Meter& meter);
// The others.
Result<Value> FilterReject(const Value& value, const Arguments& arguments, Meter& meter);
// Value | selectattr("name", "test", ...).
Result<Value> FilterSelectAttr(const Value& value, const Arguments& arguments, Meter& meter);
Result<Value> FilterRejectAttr(const Value& value, const Arguments& arguments, Meter& meter);
Result<Value> FilterMap(const Value& value, const Arguments& arguments,
                        Meter& meter);  // value | map("filter", ...) or map(attribute="name")

}  // namespace lamina::chat
