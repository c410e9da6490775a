// Errors in the form that the clients of a path expect.
#pragma once

#include <string_view>

#include "api/exchange.h"

namespace lamina {

// `response` itself if it is no error of ErrorResponse's. Fields are named there as chat requests
// have them; here as the path's protocol has them.
OutboundResponse InProtocolOf(std::string_view path, OutboundResponse response);

// Anthropic's name for errors of this kind: "invalid_request_error", ...
const char* AnthropicErrorType(int http_status);

}  // namespace lamina
