// The binary operators of chat templates, with Python's meaning.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/template_meter.h"
#include "text/template_value.h"

namespace lamina::chat {

// `op`: + - * / // % ~ == != < <= > >= in "not in". Integers stay integers, except for /.
// kInvalidArgument: these two values cannot be combined so, or the result does not fit into 64
// bits; kOutOfSpace. A list that only `left` holds is not copied to add to it.
Result<Value> ApplyOperator(std::string_view op, Value left, const Value& right, Meter& meter);

// Where `part` begins in `text` at or behind `from`; npos: nowhere. Takes time in proportion to
// their lengths, whatever they are.
size_t FindText(std::string_view text, std::string_view part, size_t from);

}  // namespace lamina::chat
