// Functions that every chat template may call.
#pragma once

#include <ctime>
#include <string_view>

#include "base/status.h"
#include "text/template_builtins.h"
#include "text/template_value.h"

namespace lamina::chat {

// Whether this is one of raise_exception, namespace, dict, range and strftime_now.
bool IsFunction(std::string_view name);

// Calls the function. strftime_now writes `now`, as local time. kInvalidArgument if it is
// raise_exception, with its message, or if the arguments do not fit; kOutOfSpace if the meter does
// not allow it. REQUIRES: IsFunction(name).
Result<Value> CallFunction(std::string_view name, const Arguments& arguments, std::time_t now,
                           Meter& meter);

}  // namespace lamina::chat
