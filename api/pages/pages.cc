#include "api/pages/pages.h"

#include <cstdio>
#include <string>

#include "api/api_error.h"
#include "transport/crypto.h"

namespace lamina {

OutboundResponse PageResponse(std::string_view page) {
  constexpr size_t kNonceBytes = 16;
  const Result<std::string> random = RandomBytes(kNonceBytes);
  if (!random.ok()) return ErrorResponse(ApiError::From(random.status()));
  std::string nonce;
  for (const char c : *random) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(c));
    nonce += digits;
  }
  OutboundResponse response{200, "text/html; charset=utf-8", std::string(page), {}};
  constexpr std::string_view kPlace = "@NONCE@";
  for (size_t at = 0; (at = response.body.find(kPlace, at)) != std::string::npos;)
    response.body.replace(at, kPlace.size(), nonce);
  response.headers = {
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'nonce-" + nonce + "'; style-src 'nonce-" + nonce +
           "'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"},
      {"Cache-Control", "no-store"}};
  return response;
}

}  // namespace lamina
