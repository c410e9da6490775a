// The binary operators of chat templates, with Python's meaning.
#pragma once

#include <string_view>

#include "base/status.h"
#include "frontend/text/template_value.h"

namespace lamina::chat {

// `op`: + - * / // % ~ == != < <= > >= in "not in". Integers stay integers, except for /. kInvalidArgument: these two values cannot be
// combined so, or the result does not fit into 64 bits.
Result<Value> ApplyOperator(std::string_view op, const Value& left, const Value& right);

}  // namespace lamina::chat
