#include "api/cors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

namespace lamina {
namespace {

using nlohmann::json;

// A scheme, a host and perhaps a port: what browsers send, without a path.
bool IsOrigin(const std::string& text) {
  if (text == "*" || text == "null") return true;
  const size_t scheme = text.find("://");
  if (scheme == std::string::npos || scheme == 0) return false;
  const std::string host = text.substr(scheme + 3);
  return !host.empty() && std::ranges::all_of(host, [](char c) {
    return c > ' ' && c < 127 && c != '/' && c != ',' && c != '?' && c != '#' && c != '@';
  });
}

}  // namespace

std::string AllowedOrigin(const std::vector<std::string>& allowed, std::string_view origin) {
  if (origin.empty()) return "";
  for (const std::string& one : allowed) {
    if (one == "*" || one == origin) return one;
  }
  return "";
}

OutboundResponse PreflightResponse(std::string_view asked_headers) {
  OutboundResponse response{200, "text/plain", "", {}};
  response.headers = {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                      {"Access-Control-Max-Age", "600"}};
  // Any header may be sent: which of them matter is the API's own affair.
  if (!asked_headers.empty())
    response.headers.emplace_back("Access-Control-Allow-Headers", std::string(asked_headers));
  return response;
}

Result<std::vector<std::string>> ParseOrigins(const std::string& text) {
  std::vector<std::string> origins;
  if (text.starts_with('[')) {
    const json list = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!list.is_array()) return InvalidArgument("'" + text + "' is no JSON list of origins");
    for (const json& item : list)
      origins.push_back(item.is_string() ? item.get<std::string>() : "");
  } else {
    std::istringstream items(text);
    for (std::string item; std::getline(items, item, ',');) {
      item.erase(0, item.find_first_not_of(' '));
      item.erase(item.find_last_not_of(' ') + 1);
      origins.push_back(item);
    }
  }
  for (std::string& origin : origins) {
    if (origin.ends_with('/')) origin.pop_back();  // as people copy it from a browser
    if (!IsOrigin(origin))
      return InvalidArgument("'" + origin +
                             "' is not an origin such as https://example.org or "
                             "http://localhost:3000; * is all of them");
  }
  return origins;
}

}  // namespace lamina
