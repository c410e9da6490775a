// What a client is told when something is wrong: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <string>

#include "api/exchange.h"
#include "base/status.h"

namespace lamina {

struct ApiError {
  int http_status = 400;
  std::string message;
  std::string param;  // the request's field, "" if it is none

  // kInvalidArgument, kOutOfSpace: 400; kNotFound: 404; kUnimplemented: 501; kTryAgain, kPeerLost,
  // kTimeout: 503; others: 500.
  static ApiError From(const Status& status);
};

std::string ErrorJson(const ApiError& error);

// 503 carries Retry-After: 1.
OutboundResponse ErrorResponse(const ApiError& error);

}  // namespace lamina
