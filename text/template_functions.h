// Functions that every chat template may call.
#pragma once

#include <ctime>
#include <string_view>

#include "base/status.h"
#include "text/template_builtins.h"
#include "text/template_value.h"

namespace lamina::chat {

// raise_exception, namespace, dict, range, strftime_now.
bool IsFunction(std::string_view name);

// name(arguments). `now`: what strftime_now writes, as local time. kInvalidArgument:
// raise_exception() was called (its message), or the arguments do not fit; kOutOfSpace. REQUIRES:
// IsFunction(name).
Result<Value> CallFunction(std::string_view name, const Arguments& arguments, std::time_t now,
                           Meter& meter);

}  // namespace lamina::chat
