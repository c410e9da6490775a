#include "api/api_error.h"

#include <nlohmann/json.hpp>

namespace lamina {
namespace {

const char* ErrorType(int http_status) {
  switch (http_status) {
    case 400: return "BadRequestError";
    case 401: return "AuthenticationError";
    case 404: return "NotFoundError";
    case 405: return "MethodNotAllowedError";
    case 413: return "RequestTooLargeError";
    case 431: return "HeaderTooLargeError";
    case 501: return "NotImplementedError";
    case 503: return "ServiceUnavailableError";
    default: return "InternalServerError";
  }
}

int HttpStatusOf(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kOutOfSpace: return 400;
    case StatusCode::kNotFound: return 404;
    case StatusCode::kUnimplemented: return 501;
    case StatusCode::kTryAgain:
    case StatusCode::kPeerLost:
    case StatusCode::kTimeout: return 503;
    default: return 500;
  }
}

}  // namespace

ApiError ApiError::From(const Status& status) {
  const bool overload = status.code() == StatusCode::kTryAgain && status.message().empty();
  return {HttpStatusOf(status.code()),
          overload ? "the server is at its limit; try again later" : status.message(), ""};
}

std::string ErrorJson(const ApiError& error) {
  const nlohmann::ordered_json param =
      error.param.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(error.param);
  const nlohmann::ordered_json json = {{"error",
                                        {{"message", error.message},
                                         {"type", ErrorType(error.http_status)},
                                         {"param", param},
                                         {"code", error.http_status}}}};
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

OutboundResponse ErrorResponse(const ApiError& error) {
  OutboundResponse response{error.http_status, "application/json", ErrorJson(error), {}};
  if (error.http_status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

}  // namespace lamina
