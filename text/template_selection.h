// Filters that apply a test or a filter to each entry of a list.
#pragma once

#include "base/status.h"
#include "text/template_builtins.h"
#include "text/template_value.h"

namespace lamina::chat {

// Errors as ApplyFilter, with those of what is applied.
Result<Value> FilterSelect(const Value& value, const Arguments& arguments,
                           Meter& meter);  // value | select("test", ...); without a test: what is true
Result<Value> FilterReject(const Value& value, const Arguments& arguments, Meter& meter);      // the others
Result<Value> FilterSelectAttr(const Value& value, const Arguments& arguments, Meter& meter);  // value | selectattr("name", "test", ...)
Result<Value> FilterRejectAttr(const Value& value, const Arguments& arguments, Meter& meter);
Result<Value> FilterMap(const Value& value, const Arguments& arguments,
                        Meter& meter);  // value | map("filter", ...) or map(attribute="name")

}  // namespace lamina::chat
