// A choice of tools that demands a call: the answer is constrained to JSON that is one.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "api/api_error.h"
#include "api/requests.h"

namespace lamina {

// Sets the constraint of the request's options, if its tool_choice is "required" or names a tool.
// The answer is then a list of {"name", "parameters"}, or the arguments of the tool that is named.
// An error: it has another constraint already, or what cannot go together with one. REQUIRES: its
// tools are in the client's order (PrepareForTemplate).
std::optional<ApiError> ForceCall(ChatRequest& request);

}  // namespace lamina
