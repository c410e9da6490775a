// Cross-origin resource sharing: which web pages may use the API from a browser (Fetch standard,
// section "CORS protocol").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/exchange.h"
#include "base/status.h"

namespace lamina {

// What Access-Control-Allow-Origin says to a page of `origin`: "*", the origin, or "" if it is not
// among those that are allowed ("*": all) or there is none.
std::string AllowedOrigin(const std::vector<std::string>& allowed, std::string_view origin);

// The answer to a browser that asks what a page may send. `asked_headers`:
// Access-Control-Request-Headers.
OutboundResponse PreflightResponse(std::string_view asked_headers);

// Reads "https://a.example, http://localhost:3000", "*", or the same as a JSON list, as vLLM has
// it. kInvalidArgument: one of them is no origin.
Result<std::vector<std::string>> ParseOrigins(const std::string& text);

}  // namespace lamina
